"""Candidates for dense layers: 1x1 convolutions of one pixel."""

from __future__ import annotations

from typing import Final

from core.gpu.select import FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.writers import backward_steps, forward_steps

CANDIDATES: Final = (
    Candidate("implicit_gemm", ("dense",), FORWARD, lambda c: forward_steps.dense(c.frame, c.step),
              "product by mma.sync, factors through a cp.async ring, bias and activation on the way out"),
    Candidate("implicit_gemm", ("dense",), INPUT, lambda c: backward_steps.convolution_input(c.backward, c.step),
              "the same product with the filters transposed"),
    Candidate("split_pixels", ("dense",), WEIGHT, lambda c: backward_steps.weights(c.backward, c.step),
              "sum over images split between blocks, parts added in order"),
)  # fmt: skip
