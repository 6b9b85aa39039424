"""Every way to convolve on the CPU, one layer at a time, beside PyTorch: milliseconds of a forward pass.

    python -m benchmarks.single_convolutions

The fastest of rounds interleaved: what else the machine does only ever makes a round slower. Each way is compared with
the reference in float64 first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.pytorch import torch
from benchmarks.record import Row, make_row, write_results
from core.laboratory.kernel_comparison import list_kernels, make_case, solve
from core.laboratory.timing import bare_run
from core.ops.registry import KernelCase

ROUNDS = 40
ENOUGH_MS = 1000.0
"""A way that has had so much time is not run in the rounds that are left."""
LAYERS: dict[str, KernelCase] = {
    f"{kernel}x{kernel} {side}px {channels}->{filters} b{batch}": make_case(
        "conv2d", (side, side, channels), batch, filters=filters, kernel=(kernel, kernel), padding=(kernel // 2,) * 4
    )
    for batch, side, channels, filters, kernel in (
        (32, 28, 1, 8, 5), (32, 28, 8, 8, 5), (8, 28, 32, 128, 3), (1, 122, 32, 32, 3), (8, 28, 256, 32, 1),
    )
}  # fmt: skip
"""Both layers of the lesson's network, a fire module's 3x3, the depthwise study's size, a squeeze."""


def torch_way(case: KernelCase, given: dict[str, Any]) -> Callable[[], object]:
    x = torch.from_numpy(given["x"]).permute(0, 3, 1, 2)
    weight = torch.from_numpy(given["weight"]).permute(0, 3, 1, 2)
    bias, pad = torch.from_numpy(given["bias"]), case.attributes["padding"][0]

    def run() -> object:
        with torch.inference_mode():
            return torch.nn.functional.conv2d(x, weight, bias, 1, pad)

    return run


def ways_of(case: KernelCase) -> dict[str, Callable[[], object]]:
    """Each way as something to run, checked; PyTorch last."""
    given, wanted = solve(case)
    ways: dict[str, Callable[[], object]] = {}
    for row in list_kernels(("conv2d",)):
        if row.device != "cpu" or row.direction != "forward" or row.refuses(case):
            continue
        arrays = {**given, "out": np.full(wanted["out"].shape, np.nan, np.float32)}
        row.run(case, arrays)
        error = np.abs(arrays["out"] - wanted["out"]).max() / np.abs(wanted["out"]).max()
        assert error <= row.tolerance, (row.key, error)
        ways[row.algorithm] = bare_run(row, case, arrays)
    return {**ways, "pytorch": torch_way(case, given)}


def milliseconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rows: list[Row] = []
    figures: dict[str, dict[str, float]] = {}
    for name, case in LAYERS.items():
        ways = ways_of(case)
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, run in ways.items():
                if sum(taken[way]) < ENOUGH_MS:
                    taken[way].append(milliseconds(run))
        best = {way: min(times) for way, times in taken.items()}
        peers = {"pytorch": best.pop("pytorch")}
        figures[name] = best
        rows.append(make_row(name, min(best.values()), peers, "ms"))
        print(name, {way: round(ms, 3) for way, ms in {**best, **peers}.items()}, flush=True)
    write_results("single_convolutions", rows, algorithms=figures)


if __name__ == "__main__":
    main()
