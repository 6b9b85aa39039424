"""Candidates for dense layers: 1x1 convolutions of one pixel."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.conv.configurations import product_tiles, weight_tiles
from core.gpu.ops.dense import launches
from core.gpu.select import BF16, FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.writers.few import convolutions as few

CANDIDATES: Final = (
    Candidate("implicit_gemm", ("dense",), FORWARD, launches.forward,
              "product by mma.sync, factors through a cp.async ring, bias and activation on the way out",
              configurations=product_tiles),
    Candidate("few", ("dense",), FORWARD, few.dense_alone, "all loads of a block at once, for few images", "auto",
              0.45, few.refuse_dense, arithmetics=BF16),
    Candidate("implicit_gemm", ("dense",), INPUT, launches.backward_input,
              "the same product with the filters transposed", configurations=product_tiles),
    Candidate("split_pixels", ("dense",), WEIGHT, launches.weights,
              "sum over images split between blocks, parts added in order", configurations=weight_tiles),
)  # fmt: skip
