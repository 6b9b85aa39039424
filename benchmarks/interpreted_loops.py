"""What a network costs in interpreted Python: loops over the outputs, with one NumPy product per window.

A few outputs of every convolution and max pooling are timed, and the whole is extrapolated from these: nobody waits ten
minutes for one iteration. Processor time, one thread. It takes a few seconds.

    python -m benchmarks.interpreted_loops
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.record import Row, write_results
from core.laboratory.algorithms import ModuleTimes
from core.models.architectures import build
from core.ops.window import read_window

OUTPUTS, ROUNDS = 100, 20
"""Timed outputs of a layer."""


def totals(modules: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Milliseconds of the forward and of the backward pass."""
    return sum(forward for forward, _ in modules.values()), sum(backward for _, backward in modules.values())


def loop_times(model: str, classes: int, side: int, batch: int) -> ModuleTimes:
    """Milliseconds of a network's modules, from OUTPUTS outputs of every convolution and max pooling."""
    graph = build(model, classes, side, dropout=0.0)
    found: ModuleTimes = {}
    for node in graph.nodes:
        if node.op not in ("conv2d", "max_pool"):
            continue
        depth = graph.node(node.inputs[0]).shape[2]
        height, width = read_window(node.attributes).kernel
        one = loop_convolution if node.op == "conv2d" else loop_pooling
        forward, backward = one(height, width, depth)
        outputs = batch * int(np.prod(node.shape))
        module = ".".join(node.name.split(".")[:2])
        f, b = found.get(module, (0.0, 0.0))
        found[module] = f + forward * outputs, b + backward * outputs
    return found


def loop_convolution(height: int, width: int, depth: int) -> tuple[float, float]:
    """Milliseconds of one output, and of its part of the gradients of input and filter."""
    x = np.random.default_rng(0).standard_normal((depth, height + 15, width + 15), np.float32)
    weight, out = x[:, :height, :width].copy(), np.zeros((16, 16), np.float32)
    dx, dweight = np.zeros_like(x), np.zeros_like(weight)

    def forward(i: int, j: int) -> None:
        out[i, j] = np.sum(x[:, i : i + height, j : j + width] * weight)

    def backward(i: int, j: int) -> None:
        dx[:, i : i + height, j : j + width] += weight * out[i, j]
        np.add(dweight, x[:, i : i + height, j : j + width] * out[i, j], out=dweight)

    return time_outputs(forward), time_outputs(backward)


def loop_pooling(height: int, width: int, depth: int) -> tuple[float, float]:
    x = np.random.default_rng(0).standard_normal((height + 15, width + 15), np.float32)
    out, dx = np.zeros((16, 16), np.float32), np.zeros_like(x)

    def forward(i: int, j: int) -> None:
        out[i, j] = np.max(x[i : i + height, j : j + width])

    def backward(i: int, j: int) -> None:
        y, z = divmod(int(np.argmax(x[i : i + height, j : j + width])), width)
        dx[i + y, j + z] += out[i, j]

    return time_outputs(forward), time_outputs(backward)


def time_outputs(run: Callable[[int, int], None]) -> float:
    """Milliseconds of an output: the least of ROUNDS, as a busy machine only adds."""
    return min(_time_round(run) for _ in range(ROUNDS)) / OUTPUTS


def _time_round(run: Callable[[int, int], None]) -> float:
    begin = time.process_time_ns()
    for output in range(OUTPUTS):
        run(output // 16 % 16, output % 16)
    return (time.process_time_ns() - begin) / 1e6


def main() -> None:
    """SqueezeNet 1.0 with 32 photos of 224 pixels, and its first fire module."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    modules = loop_times("squeezenet1_0", 38, 224, 32)
    rows = []
    for name, times in (("squeezenet1_0", totals(modules)), ("features.0", modules["features.0"]),
                        ("features.3", modules["features.3"])):  # fmt: skip
        for part, milliseconds in zip(("forward", "backward"), times, strict=True):
            rows.append(Row(f"{name} {part}, extrapolated", milliseconds / 1e3, {}, "s"))
    write_results("interpreted_loops", rows)


if __name__ == "__main__":
    main()
