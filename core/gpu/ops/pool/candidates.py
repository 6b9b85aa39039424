"""Candidates for the pools over windows and the global average."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.depthwise.launches import write_direct
from core.gpu.ops.elementwise.image_sum import average
from core.gpu.ops.pool import max_pool, naive
from core.gpu.select import FORWARD, INPUT, Candidate
from core.gpu.teaching.candidates import by_names, teach

CANDIDATES: Final = (
    teach("naive", "max_pool", FORWARD, by_names(naive.naive_max_forward), "one thread per output"),
    teach("naive", "max_pool", INPUT, by_names(naive.naive_max_backward),
          "one thread per input checks in which windows it is the maximum"),
    teach("naive", "avg_pool", FORWARD, by_names(naive.naive_avg_forward), "one thread per output"),
    teach("naive", "avg_pool", INPUT, by_names(naive.naive_avg_backward), "one thread per input"),
    teach("naive", "global_avg_pool", FORWARD, by_names(naive.naive_avg_forward), "one thread per output"),
    teach("naive", "global_avg_pool", INPUT, by_names(naive.naive_avg_backward), "one thread per input"),
    Candidate("vector", ("max_pool",), FORWARD, max_pool.max_forward,
              "16 bytes of channels per thread; training stores the position of each maximum as a byte"),
    Candidate("vector", ("max_pool",), INPUT, max_pool.max_backward,
              "one thread per stride x stride block gathers by the positions of the maxima"),
    Candidate("vector", ("avg_pool",), FORWARD, write_direct, "16 bytes of channels per thread"),
    Candidate("vector", ("avg_pool",), INPUT, write_direct,
              "one thread per pixel gathers its share of every window that contains it"),
    Candidate("vector", ("global_avg_pool",), FORWARD, average,
              "eight partial sums per image are added in shared memory"),
    Candidate("vector", ("global_avg_pool",), INPUT, average,
              "16 bytes per thread, the image's gradient from cache"),
)  # fmt: skip
