"""Candidates for dense layers: 1x1 convolutions of one pixel."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.conv import backward_weight, im2col, naive, products
from core.gpu.ops.conv.configurations import product_tiles, weight_tiles
from core.gpu.ops.matmul import cublas
from core.gpu.select import FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.teaching.candidates import by_names, in_order, teach
from core.gpu.teaching.column_sums import BIAS

CANDIDATES: Final = (
    teach("naive", "dense", FORWARD, by_names(naive.naive_forward), "one thread per output"),
    teach("shared", "dense", FORWARD, im2col.launch_im2col_forward, "tiled product"),
    teach("naive", "dense", INPUT, by_names(naive.naive_backward_input), "one thread per input"),
    teach("shared", "dense", INPUT, im2col.launch_im2col_backward_input, "tiled product"),
    teach("naive", "dense", WEIGHT, in_order(by_names(naive.naive_backward_weight), BIAS), "one thread per weight"),
    teach("shared", "dense", WEIGHT, im2col.launch_im2col_backward_weight, "tiled product of the transposed dy"),
    *(teach("cublas", "dense", direction, launch, "products by the vendor's library, float32", cublas.refuse)
      for direction, launch in ((FORWARD, cublas.launch_forward), (INPUT, cublas.launch_backward_input),
                                (WEIGHT, cublas.launch_backward_weight))),
    Candidate("implicit_gemm", ("dense",), FORWARD, products.write_forward,
              "product by mma.sync, factors through a cp.async ring, bias and activation in the epilogue",
              configurations=product_tiles),
    Candidate("implicit_gemm", ("dense",), INPUT, products.write_input,
              "the same product with the filters transposed", configurations=product_tiles),
    Candidate("split_pixels", ("dense",), WEIGHT, backward_weight.split_pixels,
              "sum over images split between blocks, parts added in order", configurations=weight_tiles),
)  # fmt: skip
