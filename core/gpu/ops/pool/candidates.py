"""Candidates for the pools over windows and the global average."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.pool import launches, naive
from core.gpu.select import FORWARD, INPUT, Candidate
from core.gpu.teaching.candidates import teach

CANDIDATES: Final = (
    teach("naive", "max_pool", FORWARD, naive.launch_naive_max_forward, "one thread per output"),
    teach("naive", "max_pool", INPUT, naive.launch_naive_max_backward,
          "one thread per input asks its windows whether it is their maximum"),
    teach("naive", "avg_pool", FORWARD, naive.launch_naive_avg_forward, "one thread per output"),
    teach("naive", "avg_pool", INPUT, naive.launch_naive_avg_backward, "one thread per input"),
    teach("naive", "global_avg_pool", FORWARD, naive.launch_naive_global_forward,
          "one thread per output"),
    teach("naive", "global_avg_pool", INPUT, naive.launch_naive_global_backward, "one thread per input"),
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
