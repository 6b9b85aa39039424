"""Times work on a GPU interleaved, as replayed CUDA graphs: no launch from Python is in the figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.pytorch import torch
from core.gpu.compilation.cuda import cuda
from core.gpu.prepared import on_stream

SLOW_MS = 20.0
"""Above this one repeat is enough."""
ROUNDS = 7


class Clock:
    """Times functions that queue work on one stream shared by PyTorch and Numba."""

    def __init__(self) -> None:
        self.torch_stream = torch.cuda.Stream()
        self.stream = cuda.external_stream(self.torch_stream.cuda_stream)

    def by_turns(self, queues: Mapping[str, Callable[[], Any]], repeats: int = 10) -> dict[str, float]:
        """Median milliseconds of each, measured in rounds: what slows the chip down slows all of them."""
        with torch.cuda.stream(self.torch_stream), on_stream(self.stream):
            ready = {name: self._prepare(queue, repeats) for name, queue in queues.items()}
            taken: dict[str, list[float]] = {name: [] for name in ready}
            for turn in range(ROUNDS):
                for name, (run, count) in ready.items():
                    if count > 0 or turn < 2:  # the slow ones twice
                        taken[name].append(self._run(run) / max(count, 1))
            return {name: statistics.median(times) for name, times in taken.items()}

    def milliseconds(self, queue: Callable[[], Any], repeats: int = 10) -> float:
        return self.by_turns({"": queue}, repeats)[""]

    def _prepare(self, queue: Callable[[], Any], repeats: int) -> tuple[Callable[[], Any], int]:
        """(what to run, how many repeats are in it; 0 for a slow one that runs by itself)."""
        queue()
        if self._run(queue) > SLOW_MS:
            return queue, 0
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        for _ in range(repeats):
            queue()
        graph.capture_end()
        graph.replay()
        return graph.replay, repeats

    def _run(self, queue: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record(self.torch_stream)
        queue()
        end.record(self.torch_stream)
        end.synchronize()
        return begin.elapsed_time(end)
