"""Candidates for batch norm."""

from __future__ import annotations

from typing import Final

from core.gpu.select import BACKWARD, FORWARD, Candidate
from core.gpu.writers import norm_steps

CANDIDATES: Final = (
    Candidate("sums", ("batch_norm",), FORWARD, lambda c: norm_steps.forward(c.frame, c.step),
              "partial sums of slices, added in order; then one pass, activation on the way out"),
    Candidate("sums", ("batch_norm",), BACKWARD, lambda c: norm_steps.backward(c.backward, c.step),
              "dx = a dy + b x + c, its factors from partial sums of dy and dy x, added in order"),
)  # fmt: skip
