"""Which tile the weight gradient should take, and how far its pixels should be split: all configurations in float32.

    python -m benchmarks.weight_tiles [--seconds 75]

Each is compared with the library's result before it is timed. Rows have the configuration that
`core.gpu.ops.conv.configurations.weight_tiles` ranks first; its constants are made from `times`, microseconds of all.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.clock import Clock
from benchmarks.kernels import device_arrays
from benchmarks.pytorch import torch
from benchmarks.random_shapes import error_of, library, weight_shape
from benchmarks.record import gpu_name, make_row, write_results
from core.gpu import single
from core.gpu.candidates import CANDIDATES
from core.gpu.select import WEIGHT, Case
from core.laboratory.kernel_comparison import make_case
from core.ops.registry import KernelCase

LIBRARY = "library"
DENSE = ((256, 784, 500), (128, 512, 512), (1024, 2048, 1024), (64, 1024, 1000), (256, 500, 10))
"""Images, inputs, outputs."""
CONVOLUTIONS = (
    (32, 27, 64, 256, 3), (32, 13, 64, 256, 3), (32, 13, 512, 64, 1), (32, 27, 128, 32, 1), (32, 54, 16, 64, 1),
    (32, 54, 16, 64, 3), (8, 56, 64, 64, 3), (128, 7, 64, 36, 1),
)  # fmt: skip
"""Images, side, channels, filters, side of the window."""


def cases() -> dict[str, KernelCase]:
    found = {
        f"dense {n}x{inputs}x{outputs}": make_case("dense", (inputs,), n, units=outputs, bias=True)
        for n, inputs, outputs in DENSE
    }
    return found | {
        f"conv2d {k}x{k} {side}px {channels}->{filters} b{n}": make_case(
            "conv2d", (side, side, channels), n, filters=filters, kernel=(k, k), padding=(k // 2,) * 4, bias=True,
            stride=(1, 1), groups=1,
        )
        for n, side, channels, filters, k in CONVOLUTIONS
    }  # fmt: skip


def time_all(clock: Clock, case: KernelCase) -> dict[str, float]:
    """Milliseconds by configuration, the one ranked first first, and of the library."""
    pattern, name = (case.op,), "split_pixels"
    candidate = next(c for c in CANDIDATES.all if (c.pattern, c.direction, c.name) == (pattern, WEIGHT, name))
    frame = single.new_frame(candidate, WEIGHT, case)
    configurations = candidate.configurations(Case(frame, frame.program.steps, WEIGHT))
    arrays = device_arrays(case, weight_shape(case))
    peer = library(case, arrays)[WEIGHT]
    wanted = peer()
    ways: dict[str, Callable[[], Any]] = {}
    for configuration in configurations:
        run = partial(single.runner(candidate, WEIGHT, configuration), case, arrays)
        run()
        torch.cuda.synchronize()
        error = error_of(case, arrays, WEIGHT, wanted)
        assert error < 1e-4, (case, configuration, error)
        ways[json.dumps(configuration)] = run
    return clock.by_turns({**ways, LIBRARY: peer}, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further shape after so long")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    clock, begin, rows, times = Clock(), time.perf_counter(), [], {}
    for name, case in cases().items():
        if time.perf_counter() - begin < options.seconds:
            found = time_all(clock, case)
            chosen = next(iter(found))
            rows.append(make_row(f"{name}, weight gradient, {chosen}", found[chosen], {LIBRARY: found[LIBRARY]}, "ms"))
            times[name] = {configuration: round(1e3 * ms, 2) for configuration, ms in found.items()}
    write_results("weight_tiles", rows, gpu_name(), times=times)


if __name__ == "__main__":
    main()
