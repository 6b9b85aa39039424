"""Random shapes that no table was tuned for: the kernel our selection chooses beside cuDNN or cuBLAS, float32.

    python -m benchmarks.random_shapes [--shapes 50] [--seconds 200] [--machine NAME]
    python -m benchmarks.random_shapes --families "conv 3x3 in groups" --name group_convolutions

Convolutions (3x3, 1x1, 5x5 with stride 2), depthwise convolutions and dense layers, forward and both gradients. Every
result is compared with the library's before it is timed. Rows give the median and the worst ratio of a family;
`shapes` has each shape's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.clock import Clock
from benchmarks.kernels import device_arrays, results_of, torch_convolution, torch_view
from benchmarks.pytorch import torch
from benchmarks.record import make_row, write_results
from core.gpu.kernel_entries import ROUNDED, TABLE
from core.laboratory.kernel_comparison import make_case
from core.ops.registry import VENDOR_LIBRARIES, Kernel, KernelCase

FAMILIES = ("conv 3x3", "conv 1x1", "conv 5x5 / 2", "depthwise 3x3", "dense")
IN_GROUPS = "conv 3x3 in groups"
MOST_FLOPS, MOST_FLOATS = 4e10, 1e8
"""Larger shapes are drawn again: operations of a forward pass, elements of an array."""


def draw(family: str, rng: np.random.Generator) -> KernelCase:
    """A shape of the family; sizes are drawn evenly by their logarithm, every second one a multiple of 8."""
    while True:
        groups = 2 ** int(rng.integers(1, 6)) if family == IN_GROUPS else 1
        step = groups * (8 if rng.random() < 0.5 else 1)
        channels, filters = (max(step, int(np.exp(rng.uniform(np.log(3), np.log(600)))) // step * step) for _ in "io")
        batch, side = 2 ** int(rng.integers(0, 8)), int(np.exp(rng.uniform(np.log(6), np.log(130))))
        kernel = {"conv 1x1": 1, "conv 5x5 / 2": 5, "dense": 1}.get(family, 3)
        if family == "dense":
            channels, filters, side = 4 * channels, 4 * filters, 1
        outputs = 1 if family == "depthwise 3x3" else filters
        flops = 2 * batch * side * side * channels * outputs * kernel * kernel // groups
        if flops > MOST_FLOPS or batch * side * side * max(channels, filters) > MOST_FLOATS:
            continue
        if family == "dense":
            return make_case("dense", (channels,), batch, units=filters, bias=True)
        more: dict[str, Any] = {"kernel": (kernel,) * 2, "padding": (kernel // 2,) * 4, "bias": True, "groups": groups}
        if family == "depthwise 3x3":
            del more["groups"]
            return make_case("depthwise_conv2d", (side, side, channels), batch, **more)
        stride = (2, 2) if kernel == 5 else (1, 1)
        return make_case("conv2d", (side, side, channels), batch, filters=filters, stride=stride, **more)


def weight_shape(case: KernelCase) -> tuple[int, ...]:
    depth = case.inputs[0][-1]
    if case.op == "dense":
        return case.output[0], depth
    kernel = case.attributes["kernel"]
    if case.op == "depthwise_conv2d":
        return depth, *kernel, 1
    return case.output[-1], *kernel, depth // case.attributes["groups"]


def library(case: KernelCase, arrays: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """PyTorch's functions by direction, on the same memory."""
    if case.op != "dense":
        return torch_convolution(case, arrays, case.attributes.get("groups", case.inputs[0][-1]))
    x, weight, bias, dy = (torch_view(arrays[name]) for name in ("x", "weight", "bias", "dy"))
    return {
        "forward": lambda: torch.addmm(bias, x, weight.T),
        "backward_input": lambda: dy @ weight,
        "backward_weight": lambda: (dy.T @ x, dy.sum(0)),
    }


def choose(case: KernelCase, direction: str) -> Kernel:
    """Our highest level that does not refuse, in float32."""
    rows = [row for row in TABLE.of(case.op, direction) if row.tolerance is not ROUNDED]
    return next(r for r in reversed(rows) if r.algorithm not in VENDOR_LIBRARIES and not r.refuses(case))


def error_of(case: KernelCase, arrays: dict[str, Any], direction: str, wanted: Any) -> float:
    """Relative error of our result; wanted: the library's, the first of several."""
    wanted = next(w for w in wanted if w is not None) if isinstance(wanted, tuple) else wanted
    got = torch_view(arrays[results_of(direction)])
    got = got if case.op == "dense" else got.permute(0, 3, 1, 2)
    return float((got - wanted).norm() / wanted.norm())


def ratios(clock: Clock, case: KernelCase) -> Iterator[tuple[str, str, float, float]]:
    """(direction, chosen algorithm, our and the library's milliseconds) of a shape."""
    arrays = device_arrays(case, weight_shape(case))
    for direction, peer in library(case, arrays).items():
        row = choose(case, direction)
        row.run(case, arrays)
        error = error_of(case, arrays, direction, peer())
        assert error < 1e-3, (case, row.key, error)
        times = clock.by_turns({"ours": partial(row.run, case, arrays), "library": peer})
        yield direction, row.algorithm, times["ours"], times["library"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=50, help="of each family")
    parser.add_argument("--seconds", type=float, default=1e9, help="draw no further shapes after so long")
    parser.add_argument("--families", nargs="*", default=FAMILIES, choices=(*FAMILIES, IN_GROUPS))
    parser.add_argument("--name", default="random_shapes", help="of the file of results")
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    rng, clock, begin = np.random.default_rng(0), Clock(), time.perf_counter()
    found: dict[str, list[tuple[float, str]]] = {}
    for number in range(options.shapes):
        for family in options.families:
            if time.perf_counter() - begin > options.seconds:
                continue
            case = draw(family, rng)
            shape = f"{case.batch}x{case.inputs[0]} to {case.output}"
            for direction, algorithm, ours, theirs in ratios(clock, case):
                found.setdefault(f"{family} {direction}", []).append((theirs / ours, f"{shape} {algorithm}"))
                print(f"{number} {family} {direction} {shape} {algorithm}: {theirs / ours:.2f}x", flush=True)
    rows = []
    for name, all_of_it in found.items():
        values = [ratio for ratio, _ in all_of_it]
        for row, value in (("median", statistics.median(values)), ("worst", min(values))):
            rows.append(make_row(f"{name}, {row}", value, {"library": 1.0}, "x"))
    write_results(options.name, rows, options.machine, shapes={k: sorted(v) for k, v in found.items()})


if __name__ == "__main__":
    main()
