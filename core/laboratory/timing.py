"""Times kernels on random arrays, on the host or on the GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from core.cores import usable_cores
from core.cpu.single import prepare_single, run_single
from core.device import PhotoBatch
from core.ops.contract import Array
from core.ops.op_table import LOSSES, OPS
from core.ops.photo import identity_augmentation
from core.ops.registry import Kernel, KernelCase

PRODUCT: Final = "matmul"
"""The matrix product: not an op of a network, but the core of convolutions and dense layers."""
REPEATS: Final = 7
SECONDS: Final = 0.5
"""Time limit for the repeats of one kernel."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One kernel's median milliseconds, or why it cannot run; halved: its factors are rounded to bf16."""

    algorithm: str
    milliseconds: float
    gflops: float
    refusal: str = ""
    halved: bool = False


def bare_run(kernel: Kernel, case: KernelCase, arrays: dict[str, Any]) -> Callable[[], Any]:
    """Return the computation of a kernel alone: the records of a CPU kernel are prepared once, not at every run."""
    if isinstance(kernel.run, partial) and kernel.run.func is run_single:
        return prepare_single(case, arrays, kernel.direction, kernel.writers, usable_cores())
    return partial(kernel.run, case, arrays)


def random_arrays(case: KernelCase) -> dict[str, Array]:
    """Inputs, parameters, labels and dy of a case with one input or two matrices."""
    rng = np.random.default_rng(0)
    if case.op == PRODUCT:
        a, b = (rng.standard_normal(shape, np.float32) for shape in case.inputs)
        return {"x": a, "x2": b}
    arrays = {name: rng.standard_normal((case.batch, *shape), np.float32)
              for name, shape in (("x", case.inputs[0]), ("dy", case.output))}  # fmt: skip
    for p in OPS[case.op].parameters(case.attributes, case.inputs):
        drawn = rng.standard_normal(p.shape, np.float32) * np.float32(p.fan_in**-0.5)
        arrays[p.role] = 1 + np.abs(drawn) / 2 if p.role == "running_var" else drawn
    if case.op in LOSSES:
        arrays["dy"][:] = 1
        arrays["labels"] = rng.integers(-1, case.inputs[0][0], case.batch).astype(np.int32)
    return arrays


def random_photos(batch: int, image_size: int, classes: int) -> PhotoBatch:
    """Square photos and labels, the same in every program."""
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (batch, image_size, image_size, 3), np.uint8)
    augmentation = identity_augmentation(batch, image_size, image_size)
    return PhotoBatch(photos, augmentation, rng.integers(0, classes, batch).astype(np.int32))


def time_on_host(run: Callable[[], object], repeats: int = REPEATS, seconds: float = SECONDS) -> float:
    """Median milliseconds of `run`, over at most `repeats` runs that start within `seconds`."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def time_on_device(run: Callable[[], Any]) -> float:
    """Median milliseconds of what `run` queues, by the GPU's clock, in a captured graph: Python launches slowly."""
    from core.gpu.compilation.cuda import cuda, driver
    from core.gpu.graph_capture import CapturedGraph
    from core.gpu.prepared import on_stream, stream_address

    stream, first, last = cuda.stream(), cuda.event(), cuda.event()
    with on_stream(stream):
        run()
        stream.synchronize()
        graph = CapturedGraph(driver.CUstream(stream_address()), run)
        graph.replay()
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < 1e3 * SECONDS:
            first.record(stream)
            graph.replay()
            last.record(stream)
            last.synchronize()
            times.append(float(cuda.event_elapsed_time(first, last)))
        graph.close()
    return statistics.median(times)
