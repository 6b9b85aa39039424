"""Times one kernel on one case, on the host or on the GPU, after comparing it with the reference."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from core.cores import usable_cores
from core.cpu.single import prepare_single, run_single
from core.ops.contract import Array
from core.ops.op_table import OPS
from core.ops.registry import Kernel, KernelCase, Registry


@final
@dataclass(frozen=True, slots=True)
class ArrayBackend:
    """How to copy an array to a device."""

    put: Callable[[Array], Any]


HOST: Final = ArrayBackend(np.ascontiguousarray)


def cuda_backend() -> ArrayBackend:
    """Return the function for device arrays of the first GPU."""
    from core.gpu.compilation.cuda import cuda

    return ArrayBackend(cuda.to_device)


REPEATS: Final = 7
ENOUGH_SECONDS: Final = 0.5
"""Time limit, seconds, for the repeats of one kernel."""
HALVED: Final = 1e-2
"""Only kernels in bf16 are allowed so large an error."""


@final
@dataclass(frozen=True, slots=True)
class Timing:
    """One kernel's median milliseconds, or the reason of its refusal."""

    algorithm: str
    milliseconds: float
    gflops: float
    refusal: str = ""
    halved: bool = False
    """Its factors are rounded to bf16, so it is compared with the peak of bf16."""


def time_rows(case: KernelCase, direction: str, table: Registry, place: ArrayBackend, flops: int) -> Iterator[Timing]:
    """Every kernel of a case, simplest first; `flops` is the work of one run."""
    arrays = {name: place.put(value) for name, value in random_arrays(case).items()}
    for kernel in table.of(case.op, direction):
        refusal = kernel.refuses(case)
        if refusal is not None:
            yield Timing(kernel.algorithm, 0.0, 0.0, refusal)
            continue
        kernel.run(case, arrays)  # compiles, and fills the caches
        ms = _median(bare_run(kernel, case, arrays), place)
        yield Timing(kernel.algorithm, ms, flops / ms / 1e6, halved=kernel.tolerance.relative >= HALVED)


def bare_run(kernel: Kernel, case: KernelCase, arrays: dict[str, Any]) -> Callable[[], object]:
    """Return the computation of a kernel alone: the records of a CPU kernel are prepared once, not at every run."""
    if isinstance(kernel.run, partial) and kernel.run.func is run_single:
        return prepare_single(case, arrays, kernel.direction, kernel.writers, usable_cores())
    return partial(kernel.run, case, arrays)


def random_arrays(case: KernelCase) -> dict[str, Array]:
    """Inputs, parameters, gradients and results of a case with one input or two matrices; results are NaN."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    if case.op == "matmul":
        factors = {"x": drawn(*case.inputs[0]), "x2": drawn(*case.inputs[1])}
        return factors | {"out": np.full(case.output, np.nan, np.float32)}
    out = (case.batch, *case.output)
    arrays = {"x": drawn(case.batch, *case.inputs[0]), "dy": drawn(*out), "out": np.full(out, np.nan, np.float32)}
    arrays["dx"] = np.full_like(arrays["x"], np.nan)
    for parameter in OPS[case.op].parameters(case.attributes, case.inputs):
        arrays[parameter.role] = drawn(*parameter.shape)
        arrays[f"d{parameter.role}"] = np.full(parameter.shape, np.nan, np.float32)
    return arrays


def _median(run: Callable[[], Any], place: ArrayBackend) -> float:
    """Median milliseconds of one run."""
    if place is not HOST:
        return time_on_device(run)
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < ENOUGH_SECONDS * 1e3:
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def time_on_device(run: Callable[[], Any]) -> float:
    """Median milliseconds of what `run` queues, by the GPU's own clock.

    A captured graph is replayed: a launch from Python takes longer than many a kernel.
    """
    from core.gpu.compilation.cuda import cuda, driver
    from core.gpu.driver.hosted import on_stream, stream_address
    from core.gpu.graph_capture import CapturedGraph

    stream, first, last = cuda.stream(), cuda.event(), cuda.event()
    with on_stream(stream):
        run()
        stream.synchronize()
        graph = CapturedGraph(driver.CUstream(stream_address()), run)
        graph.replay()
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < ENOUGH_SECONDS * 1e3:
            first.record(stream)
            graph.replay()
            last.record(stream)
            last.synchronize()
            times.append(float(cuda.event_elapsed_time(first, last)))
        graph.close()
    return statistics.median(times)
