"""Candidates for softmax and the global average."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.loss import launches
from core.gpu.select import FORWARD, INPUT, Candidate
from core.gpu.writers.plain_launches import softmax_launch

CANDIDATES: Final = (
    Candidate("warp", ("softmax",), FORWARD, lambda c: c.frame.add(softmax_launch(c.frame, c.step)),
              "a warp a pixel, 16 bytes a thread"),
    Candidate("warp", ("softmax",), INPUT, launches.softmax_backward,
              "a warp a pixel, one sum"),
    Candidate("vector", ("global_avg_pool",), FORWARD, launches.average_forward,
              "eight rows of vectors an image meet in shared memory"),
    Candidate("vector", ("global_avg_pool",), INPUT, launches.average_backward,
              "a block an image spreads the gradient evenly"),
)  # fmt: skip
