"""The table of all candidates, from which plans choose; those of an op and direction are listed simplest first.

Efficiencies are an order of preference where nothing was measured: one launch over two. Of equal costs the first wins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from core.gpu.ops.conv import backward_weight, fft, im2col, transformed, winograd
from core.gpu.ops.conv import launches as conv
from core.gpu.ops.conv import naive as conv_naive
from core.gpu.ops.conv import shared as conv_shared
from core.gpu.ops.conv.configurations import product_tiles, weight_tiles
from core.gpu.ops.dense import gemv
from core.gpu.ops.depthwise import launches as depthwise
from core.gpu.ops.depthwise import shared as depthwise_shared
from core.gpu.ops.elementwise import combine, image_sum
from core.gpu.ops.elementwise import naive as elementwise
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.ops.loss import head, softmax
from core.gpu.ops.loss import naive as loss_naive
from core.gpu.ops.matmul import cublas, narrow, tensor_core, tiled, warp_tiled
from core.gpu.ops.matmul.tiled import FACTORS, SIDE, TILE, tiles
from core.gpu.ops.norm import launches as norm
from core.gpu.ops.norm import naive as norm_naive
from core.gpu.ops.norm import pointwise_launches
from core.gpu.ops.pool import max_pool
from core.gpu.ops.pool import naive as pool_naive
from core.gpu.select import BACKWARD, BF16, EVERY, FORWARD, INPUT, WEIGHT, Candidate, Candidates, Case
from core.gpu.teaching.candidates import by_names, in_order, per_element, teach
from core.gpu.teaching.column_sums import BIAS
from core.ops.activation import ACTIVATIONS as REFERENCES
from core.ops.op_table import LOSSES
from core.ops.winograd import F2, F4

CONV: Final = (
    teach("naive", "conv2d", FORWARD, by_names(conv_naive.naive_forward),
          "one thread per output, straight from global memory"),
    teach("shared", "conv2d", FORWARD, partial(conv_shared.launch_shared, True),
          "8 x 8 pixels of 32 filters per block; input tile and filters in shared memory", conv_shared.refuse),
    teach("im2col", "conv2d", FORWARD, im2col.launch_im2col_forward,
          "windows unfolded into a matrix, then a tiled product", im2col.refuse),
    teach("naive", "conv2d", INPUT, by_names(conv_naive.naive_backward_input),
          "one thread per input gathers from every window that contains it"),
    teach("shared", "conv2d", INPUT, partial(conv_shared.launch_shared, False),
          "the forward loop over dy with the filters rotated", conv_shared.refuse),
    teach("im2col", "conv2d", INPUT, im2col.launch_im2col_backward_input,
          "tiled product, then windows folded back", im2col.refuse),
    teach("naive", "conv2d", WEIGHT, in_order(by_names(conv_naive.naive_backward_weight), BIAS),
          "one thread per weight loops over all pixels of all images"),
    teach("shared", "conv2d", WEIGHT, conv_shared.launch_shared_backward_weight,
          "16 x 16 tiles of pixels by channels, partial sums added in order", conv_shared.refuse),
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
    Candidate("implicit_gemm", ("conv2d",), FORWARD, conv.write_forward,
              "pixels times filters by mma.sync, windows read through a cp.async ring", efficiency=0.3,
              configurations=product_tiles),
    Candidate("implicit_gemm", ("conv2d",), INPUT, conv.write_input, "the implicit product with rotated filters",
              efficiency=0.3, configurations=product_tiles, refuses=conv.refuse_phases),
    Candidate("split_pixels", ("conv2d",), WEIGHT, backward_weight.split_pixels,
              "sum over pixels split between blocks, partial sums added in order; the bias is a product with ones",
              efficiency=0.3, configurations=weight_tiles),
)  # fmt: skip

DEPTHWISE: Final = (
    teach("naive", "depthwise_conv2d", FORWARD, by_names(conv_naive.naive_forward), "one thread per output"),
    teach("naive", "depthwise_conv2d", INPUT, by_names(conv_naive.naive_backward_input),
          "one thread per input gathers from every window that contains it"),
    teach("naive", "depthwise_conv2d", WEIGHT, in_order(by_names(conv_naive.naive_backward_weight), BIAS),
          "one thread per weight loops over all pixels"),
    teach("shared", "depthwise_conv2d", WEIGHT, depthwise_shared.launch_shared_backward_weight,
          "partial sums of the pixels are added in shared memory"),
    Candidate("direct", ("depthwise_conv2d",), FORWARD, depthwise.write_direct,
              "any window: 16 bytes of channels of one output per thread",
              efficiency=0.3, refuses=depthwise.refuse_direct),
    Candidate("strips", ("depthwise_conv2d",), FORWARD, depthwise.forward_strips,
              "3x3: a thread moves down two columns, sums of three rows in registers", refuses=depthwise.refuse_strips),
    Candidate("strips_norms", ("depthwise_conv2d",), FORWARD, depthwise.forward_strips,
              "the same, previous batch norm applied, sums of the next one computed",
              refuses=depthwise.refuse_norms, exclusive=True),
    Candidate("direct", ("depthwise_conv2d",), INPUT, depthwise.write_direct,
              "one thread per pixel gathers from every window that contains it",
              efficiency=0.3, refuses=depthwise.refuse_direct),
    Candidate("strips", ("depthwise_conv2d",), INPUT, depthwise.backward_strips,
              "3x3 of stride 1: the forward strips over dy with the filters rotated",
              refuses=depthwise.refuse_gradient_strips),
    Candidate("direct", ("depthwise_conv2d",), WEIGHT, depthwise.weights_direct,
              "sums of a row of taps in registers, partial sums added in order", refuses=depthwise.refuse_direct),
    Candidate("strips_norms", ("depthwise_conv2d",), BACKWARD, depthwise.backward_norms,
              "both gradients, with those of the neighbouring batch norms: a thread moves down two columns, nine sums "
              "of the weight gradient in registers", efficiency=0.6, refuses=depthwise.refuse_norms, exclusive=True),
)  # fmt: skip

DENSE: Final = (
    teach("naive", "dense", FORWARD, by_names(conv_naive.naive_forward), "one thread per output"),
    teach("shared", "dense", FORWARD, im2col.launch_im2col_forward, "tiled product"),
    teach("naive", "dense", INPUT, by_names(conv_naive.naive_backward_input), "one thread per input"),
    teach("shared", "dense", INPUT, im2col.launch_im2col_backward_input, "tiled product"),
    teach("naive", "dense", WEIGHT, in_order(by_names(conv_naive.naive_backward_weight), BIAS),
          "one thread per weight"),
    teach("shared", "dense", WEIGHT, im2col.launch_im2col_backward_weight, "tiled product of the transposed dy"),
    *(teach("cublas", "dense", direction, launch, "products by the vendor's library, float32", cublas.refuse)
      for direction, launch in ((FORWARD, cublas.launch_forward), (INPUT, cublas.launch_backward_input),
                                (WEIGHT, cublas.launch_backward_weight))),
    Candidate("implicit_gemm", ("dense",), FORWARD, conv.write_forward,
              "product by mma.sync, factors through a cp.async ring, bias and activation in the epilogue",
              configurations=product_tiles),
    Candidate("implicit_gemm", ("dense",), INPUT, conv.write_input,
              "the same product with the filters transposed", configurations=product_tiles),
    Candidate("split_pixels", ("dense",), WEIGHT, backward_weight.split_pixels,
              "sum over images split between blocks, partial sums added in order", configurations=weight_tiles),
    *(Candidate("gemv", ("dense",), direction, write, idea, efficiency=0.5, refuses=gemv.refuse,
                arithmetics=EVERY - BF16) for direction, write, idea in (
        (FORWARD, gemv.write_forward, "a few images: warps read rows of weights, unpacked"),
        (INPUT, gemv.write_input, "a few images: units split between threads, partial sums added in order"),
        (WEIGHT, gemv.write_weight, "a few images: four by four weights per thread, stored at once"),
    )),
)  # fmt: skip

POOL: Final = (
    teach("naive", "max_pool", FORWARD, by_names(pool_naive.naive_max_forward), "one thread per output"),
    teach("naive", "max_pool", INPUT, by_names(pool_naive.naive_max_backward),
          "one thread per input checks in which windows it is the maximum"),
    teach("naive", "avg_pool", FORWARD, by_names(pool_naive.naive_avg_forward), "one thread per output"),
    teach("naive", "avg_pool", INPUT, by_names(pool_naive.naive_avg_backward), "one thread per input"),
    teach("naive", "global_avg_pool", FORWARD, by_names(pool_naive.naive_avg_forward), "one thread per output"),
    teach("naive", "global_avg_pool", INPUT, by_names(pool_naive.naive_avg_backward), "one thread per input"),
    Candidate("vector", ("max_pool",), FORWARD, max_pool.max_forward,
              "16 bytes of channels per thread; training stores the position of each maximum as a byte"),
    Candidate("vector", ("max_pool",), INPUT, max_pool.max_backward,
              "one thread per stride x stride block gathers by the positions of the maxima"),
    Candidate("vector", ("avg_pool",), FORWARD, depthwise.write_direct, "16 bytes of channels per thread"),
    Candidate("vector", ("avg_pool",), INPUT, depthwise.write_direct,
              "one thread per pixel gathers its share of every window that contains it"),
    Candidate("vector", ("global_avg_pool",), FORWARD, image_sum.average,
              "eight partial sums per image are added in shared memory"),
    Candidate("vector", ("global_avg_pool",), INPUT, image_sum.average,
              "16 bytes per thread, the image's gradient from cache"),
)  # fmt: skip

NORM: Final = (
    *(teach(name, "batch_norm", direction, partial(launch, name == "shared"), idea)
      for direction, launch, *ideas in (
        (FORWARD, norm_naive.launch_forward, "one thread per channel loops over all pixels",
         "partial sums of the pixels are added in shared memory"),
        (INPUT, norm_naive.launch_backward_input, "one thread per channel for the sums, one per element for dx",
         "partial sums, one thread per element for dx"),
        (WEIGHT, norm_naive.launch_backward_weight, "one thread per channel", "partial sums"),
    ) for name, idea in zip(("naive", "shared"), ideas, strict=True)),
    Candidate("sums", ("batch_norm",), FORWARD, norm.forward,
              "partial sums, added in order; then one pass, activation in the epilogue"),
    Candidate("sums", ("batch_norm",), BACKWARD, norm.backward,
              "dx = a dy + b x + c, its factors from partial sums of dy and dy x, added in order"),
    Candidate("expand", ("conv2d",), FORWARD, pointwise_launches.expand,
              "1x1 from few to many channels, with the sums of the next batch norm", "auto", 0.6,
              pointwise_launches.refuse_expand, arithmetics=BF16, exclusive=True),
    Candidate("project", ("conv2d",), FORWARD, pointwise_launches.project,
              "1x1 from many to few channels, previous batch norm applied, sums of the next one computed", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16, exclusive=True),
    Candidate("expand", ("conv2d",), BACKWARD, pointwise_launches.expand_backward,
              "both gradients, from that of the next batch norm", "auto", 0.6, pointwise_launches.refuse_expand,
              arithmetics=BF16, exclusive=True),
    Candidate("project", ("conv2d",), BACKWARD, pointwise_launches.project_backward,
              "both gradients, with the sums of the input's batch norm", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16, exclusive=True),
)  # fmt: skip

LOSS, MULTI = LOSSES

LOSSES_AND_SOFTMAX: Final = (
    teach("naive", "softmax", FORWARD, by_names(loss_naive.naive_forward, loss_naive.per_row), "one thread per row"),
    teach("naive", "softmax", INPUT, by_names(loss_naive.naive_backward, loss_naive.per_row), "one thread per row"),
    teach("naive", LOSS, FORWARD, by_names(loss_naive.naive_loss_forward, loss_naive.per_row), "one thread per image"),
    teach("naive", LOSS, INPUT, by_names(loss_naive.naive_loss_backward, loss_naive.per_row), "one thread per image"),
    Candidate("head", (LOSS,), FORWARD, head.write,
              "one block per image: logits, loss and correctness in shared memory"),
    Candidate("head", (LOSS,), INPUT, head.write, "the loss and its gradient (dy is 1) in one launch"),
    Candidate("head", (MULTI,), FORWARD, head.write, "one block per image: a thread has every 128th label"),
    Candidate("head", (MULTI,), INPUT, head.write, "the loss and its gradient (dy is 1) in one launch"),
    Candidate("warp", ("softmax",), FORWARD, softmax.write_softmax, "one warp per pixel, 16 bytes per thread",
              refuses=softmax.refuse_flat),
    Candidate("warp", ("softmax",), INPUT, softmax.write_softmax, "one warp per pixel, one sum",
              refuses=softmax.refuse_flat),
)  # fmt: skip

MULTIPLY_BACKWARD: Final = in_order(
    by_names(elementwise.naive_scale, x="dy", factors="x2", out="dx"),
    by_names(elementwise.naive_factor_gradient, out="dx2"),
)


def _vector(op: str, direction: str, write: Callable[[Case], None], idea: str) -> Candidate:
    return Candidate("vector", (op,), direction, write, idea, refuses=combine.refuse_padded)


ELEMENTWISE: Final = (
    *(
        teach("naive", op, direction, launch, "one thread per element")
        for op in ACTIVATIONS
        for direction, launch in (
            (FORWARD, by_names(elementwise.make_activation(op))),
            (INPUT, by_names(elementwise.make_gradient(op), y="x" if REFERENCES[op].needs_input else "out")),
        )
    ),
    teach("naive", "multiply", FORWARD, by_names(elementwise.naive_scale, factors="x2"), "one thread per element"),
    teach("naive", "multiply", INPUT, MULTIPLY_BACKWARD, "one thread per element, and one per factor"),
    teach("naive", "add", FORWARD, by_names(elementwise.naive_add, a="x", b="x2"), "one thread per element"),
    teach("naive", "add", INPUT, elementwise.launch_copies, "two copies"),
    teach("naive", "concat", FORWARD, elementwise.launch_concat, "one copy per input"),
    teach("naive", "concat", INPUT, elementwise.launch_copies, "one copy per input"),
    teach("naive", "dropout", FORWARD, by_names(elementwise.naive_dropout),
          "one thread per element computes its own random bits"),
    teach("naive", "dropout", INPUT, by_names(elementwise.naive_dropout, x="dy", out="dx"),
          "the same random bits are computed again; no mask is stored"),
    *(
        _vector(op, direction, write, idea)
        for op in ("add", *ACTIVATIONS)
        for direction, write, idea in (
            (FORWARD, combine.forward, "16 bytes per thread, activation in the epilogue"),
            (INPUT, combine.backward, "16 bytes per thread, with the gradient of the previous activation"),
        )
    ),
    _vector("multiply", FORWARD, combine.forward,
              "16 bytes per thread, the image's factors from cache"),
    _vector("multiply", INPUT, image_sum.multiply_backward,
              "16 bytes per thread; one block per 32 vectors of an image for the factors' gradient"),
    _vector("concat", FORWARD, combine.concat_forward, "one copy per input, 16 bytes per thread"),
    _vector("concat", INPUT, combine.backward, "one copy per input, 16 bytes per thread"),
    _vector("dropout", FORWARD, combine.dropout,
              "16 bytes per thread; every channel computes its own random bits"),
    _vector("dropout", INPUT, combine.dropout,
              "the same random bits are computed again; no mask is stored"),
)  # fmt: skip

PRODUCT: Final = "matmul"

MATMUL: Final = (
    teach("naive", PRODUCT, FORWARD, by_names(tiled.naive, per_element, **FACTORS), "one thread per element"),
    teach("shared", PRODUCT, FORWARD, by_names(tiled.shared, tiles(SIDE), **FACTORS), "16 x 16 tiles in shared memory"),
    teach("tiled", PRODUCT, FORWARD, by_names(tiled.tiled, tiles(TILE), **FACTORS),
          "128 x 128 outputs per block, 8 x 8 sums per thread in registers", level="shared"),
    teach("tiled_vectorised", PRODUCT, FORWARD, by_names(tiled.tiled_vectorised, tiles(TILE), **FACTORS),
          "the same with 16-byte accesses", tiled.refuse_unaligned, "shared"),
    teach("double_buffered", PRODUCT, FORWARD, by_names(tiled.double_buffered, tiles(TILE), **FACTORS),
          "the next tile is loaded while this one is multiplied", tiled.refuse_unaligned, "shared"),
    teach("warp_tiled", PRODUCT, FORWARD, warp_tiled.launch,
          "8 x 16 sums per thread, a tile per warp, no bank conflicts",
          tiled.refuse_unaligned, "shared"),
    teach("narrow", PRODUCT, FORWARD, by_names(narrow.narrow, narrow.tiles, **FACTORS),
          "a depth of at most 32, all loads at once, 4 x 4 sums per thread",
          narrow.refuse, "shared"),
    teach("cublas", PRODUCT, FORWARD, cublas.launch_product, "the vendor's library, float32", cublas.refuse),
    Candidate("tensor_core", (PRODUCT,), FORWARD, tensor_core.write, "bf16 through cp.async and mma.sync, float32 sums",
              refuses=tensor_core.refuse, capability=(8, 0), arithmetics=BF16),
)  # fmt: skip

OPTIONAL: Final = ("latency", "sm90")
"""Packages of `core.gpu` whose candidates are added if the package exists; every step has others."""

PRESENT: Final = [import_module(f"core.gpu.{name}.candidates") for name in OPTIONAL if find_spec(f"core.gpu.{name}")]

CANDIDATES: Final = Candidates((
    *CONV, *DEPTHWISE, *DENSE, *POOL, *NORM, *LOSSES_AND_SOFTMAX, *ELEMENTWISE, *MATMUL,
    *(one for package in PRESENT for one in package.CANDIDATES),
))  # fmt: skip
