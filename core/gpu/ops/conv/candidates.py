"""Candidates for convolutions.

Efficiencies are an order of preference where nothing was measured: one launch over two.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from core.gpu.ops.conv import backward_weight, fft, im2col, naive, products, shared, transformed, winograd
from core.gpu.ops.conv.configurations import product_tiles, weight_tiles
from core.gpu.select import FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.teaching.candidates import by_names, in_order, teach
from core.gpu.teaching.column_sums import BIAS
from core.ops.winograd import F2, F4

ONE = ("conv2d",)

TEACHING: Final = (
    teach("naive", "conv2d", FORWARD, by_names(naive.naive_forward),
          "one thread per output, straight from global memory"),
    teach("shared", "conv2d", FORWARD, shared.launch_shared_forward,
          "8 x 8 pixels of 32 filters per block; input tile and filters in shared memory", shared.refuse),
    teach("im2col", "conv2d", FORWARD, im2col.launch_im2col_forward,
          "windows unfolded into a matrix, then a tiled product", im2col.refuse),
    teach("naive", "conv2d", INPUT, by_names(naive.naive_backward_input),
          "one thread per input gathers from every window that contains it"),
    teach("shared", "conv2d", INPUT, shared.launch_shared_backward_input,
          "the forward loop over dy with the filters rotated", shared.refuse),
    teach("im2col", "conv2d", INPUT, im2col.launch_im2col_backward_input,
          "tiled product, then windows folded back", im2col.refuse),
    teach("naive", "conv2d", WEIGHT, in_order(by_names(naive.naive_backward_weight), BIAS),
          "one thread per weight loops over all pixels of all images"),
    teach("shared", "conv2d", WEIGHT, shared.launch_shared_backward_weight,
          "16 x 16 tiles of pixels by channels, partial sums added in order", shared.refuse),
    teach("im2col", "conv2d", WEIGHT, im2col.launch_im2col_backward_weight,
          "dy transposed times the unfolded windows", im2col.refuse),
    *(teach(name, "conv2d", direction, partial(launch, convolve), idea, refuse) for name, convolve, idea, refuse in (
        ("winograd", partial(winograd.convolve, F2), "F(2,3): 16 products for 4 outputs instead of 36",
         winograd.refuse),
        ("winograd_f4", partial(winograd.convolve, F4), "F(4,3): 36 products for 16 outputs instead of 144",
         winograd.refuse),
        ("fft", partial(fft.convolve, False), "one complex product per frequency of the whole image", fft.refuse),
        ("fft_tiled", partial(fft.convolve, True),
         "one complex product per frequency of overlapping tiles of 16 x 16 pixels", fft.refuse_tiled),
    ) for direction, launch in ((FORWARD, transformed.forward), (INPUT, transformed.backward_input))),
)  # fmt: skip

PRODUCTS: Final = (
    Candidate("implicit_gemm", ONE, FORWARD, products.write_forward,
              "pixels times filters by mma.sync, windows read through a cp.async ring", efficiency=0.3,
              configurations=product_tiles),
    Candidate("implicit_gemm", ONE, INPUT, products.write_input, "the implicit product with rotated filters",
              efficiency=0.3, configurations=product_tiles),
    Candidate("split_pixels", ONE, WEIGHT, backward_weight.split_pixels,
              "sum over pixels split between blocks, parts added in order; the bias is one more product with ones",
              efficiency=0.3, configurations=weight_tiles),
)  # fmt: skip

CANDIDATES: Final = (*TEACHING, *PRODUCTS)
