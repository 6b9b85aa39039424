"""Candidates for convolutions.

Efficiencies are an order of preference where nothing was measured: a kernel for a special case over the implicit
product, one launch over two, what a batch norm's sums are made in over what another launch reads again.
"""

from __future__ import annotations

from typing import Final

from core.gpu.ops.conv import backward_input, backward_weight, forward, im2col, image_launches, naive, shared
from core.gpu.ops.conv.configurations import halo_tiles, product_tiles, weight_tiles
from core.gpu.select import FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.teaching.candidates import teach

ONE, FIRE = ("conv2d",), ("conv2d", "conv2d")

TEACHING: Final = (
    teach("naive", "conv2d", FORWARD, naive.launch_naive_forward, "one thread per output, straight from global memory"),
    teach("shared", "conv2d", FORWARD, shared.launch_shared_forward,
          "8 x 8 pixels of 32 filters a block; input tile and filters in shared memory", shared.refuse),
    teach("im2col", "conv2d", FORWARD, im2col.launch_im2col_forward,
          "windows unfolded into a matrix, then a tiled product", im2col.refuse),
    teach("naive", "conv2d", INPUT, naive.launch_naive_backward_input,
          "one thread per input gathers from every window that saw it"),
    teach("shared", "conv2d", INPUT, shared.launch_shared_backward_input,
          "the forward loop over dy with the filters rotated", shared.refuse),
    teach("im2col", "conv2d", INPUT, im2col.launch_im2col_backward_input,
          "tiled product, then windows folded back", im2col.refuse),
    teach("naive", "conv2d", WEIGHT, naive.launch_naive_backward_weight,
          "one thread per weight loops over all pixels of all images"),
    teach("shared", "conv2d", WEIGHT, shared.launch_shared_backward_weight,
          "16 x 16 tiles of pixels by channels, slices of the pixels added in order", shared.refuse),
    teach("im2col", "conv2d", WEIGHT, im2col.launch_im2col_backward_weight,
          "dy transposed times the unfolded windows", im2col.refuse),
)  # fmt: skip

PRODUCTS: Final = (
    Candidate("implicit_gemm", ONE, FORWARD, forward.implicit_gemm,
              "pixels times filters by mma.sync, windows read through a cp.async ring", efficiency=0.3,
              configurations=product_tiles),
    Candidate("halo", ONE, FORWARD, forward.halo,
              "3x3: a pixel and its neighbours are loaded once, the nine taps are offsets", efficiency=0.34,
              refuses=forward.refuse_halo, configurations=halo_tiles),
    Candidate("batch_norm_sums", ONE, FORWARD, forward.batch_norm_sums,
              "the implicit product, with the sums of the batch norm behind", efficiency=0.46,
              refuses=forward.refuse_sums, configurations=product_tiles),
    Candidate("image", ONE, FORWARD, image_launches.forward,
              "of the network's input: filters stay in shared memory, rows of ldmatrix overlap", efficiency=0.48,
              refuses=image_launches.refuse),
    Candidate("implicit_gemm", ONE, INPUT, backward_input.implicit_gemm, "the implicit product with rotated filters",
              efficiency=0.3, configurations=product_tiles),
    Candidate("fire_halo", FIRE, INPUT, backward_input.fire_halo,
              "both halves of a fire, pixels in shared memory: the 1x1 filters are a tenth tap", "auto", 0.52,
              backward_input.refuse_fire_halo, configurations=halo_tiles),
    Candidate("split_pixels", ONE, WEIGHT, backward_weight.split_pixels,
              "sum over pixels split between blocks, parts added in order; the bias is one more product with ones",
              efficiency=0.3, configurations=weight_tiles),
)  # fmt: skip

CANDIDATES: Final = (*TEACHING, *PRODUCTS)
