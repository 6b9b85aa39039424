"""Candidates for the pools over windows and the global average."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.pool import launches
from core.gpu.select import FORWARD, INPUT, Candidate

CANDIDATES: Final = (
    Candidate("vector", ("max_pool",), FORWARD, launches.max_forward,
              "16 bytes of channels a thread; in training the winner's place is kept as a byte"),
    Candidate("vector", ("max_pool",), INPUT, launches.max_backward,
              "a thread gathers for a stride x stride block by the winners' places"),
    Candidate("vector", ("avg_pool",), FORWARD, launches.average_forward, "16 bytes of channels a thread"),
    Candidate("vector", ("avg_pool",), INPUT, launches.average_backward,
              "a thread gathers its share of every window that saw its pixel"),
    Candidate("vector", ("global_avg_pool",), FORWARD, launches.global_forward,
              "eight rows of vectors an image meet in shared memory"),
    Candidate("vector", ("global_avg_pool",), INPUT, launches.global_backward,
              "a block an image spreads the gradient evenly"),
)  # fmt: skip
