"""Candidates for softmax."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.loss import launches
from core.gpu.select import FORWARD, INPUT, Candidate

CANDIDATES: Final = (
    Candidate("warp", ("softmax",), FORWARD, launches.softmax_forward, "a warp a pixel, 16 bytes a thread",
              refuses=launches.refuse_flat),
    Candidate("warp", ("softmax",), INPUT, launches.softmax_backward, "a warp a pixel, one sum",
              refuses=launches.refuse_flat),
)  # fmt: skip
