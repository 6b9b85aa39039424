"""A step of PyTorch captured as one CUDA graph, timed by replays: no launch from Python is in the figures."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.pytorch import torch

WARM_UP = 4
"""Steps before the capture: compilation, cuDNN's choice of kernels, the optimizer's state."""


def capture(step: Callable[[], None]) -> Callable[[int], float]:
    """Milliseconds of one step, the mean of so many replays in a row."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()

    def milliseconds(replays: int) -> float:
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        for _ in range(replays):
            graph.replay()
        after.record()
        after.synchronize()
        return before.elapsed_time(after) / replays

    return milliseconds
