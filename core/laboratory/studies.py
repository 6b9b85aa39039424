"""The studies of the laboratory, as functions that yield results for command line and window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from core.cores import usable_cores
from core.cpu.timing import measure_peak
from core.device import KernelTime, Optimizer, PhotoBatch, Plan
from core.errors import ConfigError, DeviceError, OutOfMemory
from core.laboratory.kernel_comparison import SAME, cost_of, list_kernels, make_case
from core.laboratory.plot import Point
from core.laboratory.timing import PRODUCT, Timing, bare_run, random_arrays, random_photos, time_on_device, time_on_host
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.registry import KernelCase
from core.plan import compile_plan

DEPTHWISE_SHAPES: Final = ((1, 32, 122), (128, 512, 32))
"""(batch, channels, side) of the depthwise study."""
BLOCK: Final = 256
"""Threads per block in the bias study."""
HALVED: Final = 1e-2
"""Tolerance of the kernels in bf16; no other is as large."""
CLASSES: Final = 10
IN_A_GRAPH: Final = 20
"""Launches of a small kernel in one graph: starting the graph takes longer than the kernel."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Photos per second at one batch and photo size; refusal: why it is 0."""

    batch: int
    image_size: int
    photos_per_second: float
    refusal: str = ""


def matmul_study(sizes: Sequence[tuple[int, int, int]]) -> Iterator[tuple[str, list[Timing]]]:
    """(name, times of the kernels) of matrix products (M, K) (K, N) on the GPU."""
    for m, k, n in sizes:
        yield f"{m} x {k} x {n}", list(_time_product(m, k, n))


def _time_product(m: int, k: int, n: int) -> Iterator[Timing]:
    case = KernelCase("matmul", MappingProxyType({}), ((m, k), (k, n)), (m, n), 1)
    return time_kernels(case, "cuda")


def time_kernels(case: KernelCase, device: str) -> Iterator[Timing]:
    """Time every forward kernel of a case, simplest first."""
    out = case.output if case.op == PRODUCT else (case.batch, *case.output)
    arrays: dict[str, Any] = {**random_arrays(case), "out": np.empty(out, np.float32)}
    if device == "cuda":
        from core.gpu.compilation.cuda import cuda

        arrays = {name: cuda.to_device(value) for name, value in arrays.items()}
    for kernel in list_kernels((case.op,)):
        if (kernel.device, kernel.direction) != (device, "forward"):
            continue
        if refusal := kernel.refuses(case):
            yield Timing(kernel.algorithm, 0.0, 0.0, refusal)
            continue
        kernel.run(case, arrays)  # compiles, and fills the caches
        ms = (time_on_device if device == "cuda" else time_on_host)(bare_run(kernel, case, arrays))
        yield Timing(kernel.algorithm, ms, cost_of(case)[0] / ms / 1e6, halved=kernel.tolerance >= HALVED)


def peaks() -> Mapping[bool, float]:
    """Peak GFLOP/s of the GPU at its highest clock, in float32 (False) and bf16 (True).

    A multiprocessor executes 128 float32 multiply-adds per clock, 64 on 7.5 and 8.0. Source: CUDA C Programming Guide.
    """
    from core.gpu.driver.device import open_device

    hardware = open_device().hardware
    single = 64 if hardware.capability in ((7, 5), (8, 0)) else 128
    return {False: 2e-9 * single * hardware.processors * hardware.clock, True: 1e-9 * hardware.rate("bf16")}


def depthwise_study(device: str, batch: int, channels: int, side: int) -> Iterator[tuple[str, list[Timing]]]:
    """Depthwise, pointwise, and the standard 3x3 convolution that both replace, with equal channels in and out."""
    wide: dict[str, Any] = {"kernel": (3, 3), "padding": SAME}
    for name, op, attributes in (
        ("depthwise 3x3", "depthwise_conv2d", wide), ("pointwise 1x1", "conv2d", {"filters": channels}),
        ("standard 3x3", "conv2d", {**wide, "filters": channels}),
    ):
        case = make_case(op, (side, side, channels), batch, **attributes)
        yield f"{name} {batch}x{channels}x{side}x{side}", list(time_kernels(case, device))


def bias_study(batch: int, channels: int, side: int) -> Iterator[tuple[str, list[Timing]]]:
    """A bias from global and from constant memory, channels last and first, on the GPU."""
    from core.gpu.compilation.cuda import cuda
    from core.gpu.ops.elementwise.constant_bias import from_global, make_from_constant

    rng = np.random.default_rng(0)
    values = rng.standard_normal(channels, np.float32)
    count, from_constant = batch * channels * side * side, make_from_constant(values)
    x, bias = cuda.to_device(rng.standard_normal(count, np.float32)), cuda.to_device(values)
    for order, pixels in (("channels last", 1), ("channels first", side * side)):
        found = []
        channel = np.arange(count) // pixels % channels
        out = cuda.device_array(count, np.float32)
        for name, kernel, given in (("global", from_global, (x, bias, out)), ("constant", from_constant, (x, out))):
            out.copy_to_device(np.full(count, np.nan, np.float32))
            ms = time_on_device(partial(_repeat, kernel, count, (*given, channels, pixels))) / IN_A_GRAPH
            if not np.allclose(out.copy_to_host(), x.copy_to_host() + values[channel]):
                raise DeviceError(f"The bias from {name} memory was not added right on this GPU.")
            found.append(Timing(name, ms, count / ms / 1e6))
        yield f"bias, {order}, {batch}x{channels}x{side}x{side}", found


def _repeat(kernel: Any, count: int, arguments: tuple[Any, ...]) -> None:
    from core.gpu.prepared import current_stream

    for _ in range(IN_A_GRAPH):
        kernel[-(-count // BLOCK), BLOCK, current_stream()](*arguments)


def roofline_study(
    model: str, device: str, batch: int, image_size: int, precision: str = "float32"
) -> list[KernelTime]:
    plan, photos = _training_plan(model, device, batch, image_size, precision)
    times = plan.time_kernels(photos)
    plan.close()
    return times


def points(times: Sequence[KernelTime]) -> list[Point]:
    return [Point(t.layer, t.direction or "other", t.intensity, t.gflops) for t in times if t.gflops and t.intensity]


def roof(device: str) -> tuple[float, float]:
    """Measured ceilings of this machine: GFLOP/s of matrix products and GB/s of copies (read and written)."""
    if device == "cpu":
        peak = measure_peak(usable_cores())
        return peak.gflops, peak.gigabytes
    size = 1 << 26
    best = min(t.milliseconds for t in time_kernels(make_case("relu", (size,), 1), "cuda"))
    return max(t.gflops for t in _time_product(4096, 4096, 4096)), 8 * size / best / 1e6


def sweep_study(
    model: str, device: str, training: bool, batches: Sequence[int], sizes: Sequence[int], precision: str
) -> Iterator[Throughput]:
    """Photos per second over batch and photo sizes, from the median of a few steps."""
    for image_size, batch in product(sizes, batches):
        try:
            speed = _photos_per_second(model, device, training, batch, image_size, precision)
            yield Throughput(batch, image_size, speed)
        except (OutOfMemory, ConfigError, MemoryError) as error:
            yield Throughput(batch, image_size, 0.0, str(error))


def _photos_per_second(model: str, device: str, training: bool, batch: int, image_size: int, precision: str) -> float:
    if training:
        plan, photos = _training_plan(model, device, batch, image_size, precision)
        milliseconds = _median_ms(lambda: plan.train_step(photos, 1e-4))
    else:
        graph = build(model, CLASSES, image_size)
        plan = compile_plan(graph, device=device, batch=batch, precision=precision)
        plan.load(initial_weights(graph, 0))
        photos = random_photos(batch, image_size, CLASSES)
        milliseconds = _median_ms(lambda: plan.predict(photos))
    plan.close()
    return 1e3 * batch / milliseconds


def _median_ms(run: Callable[[], object]) -> float:
    run()  # compiles, and fills the caches
    return time_on_host(run, 15, 1.0)


def _training_plan(model: str, device: str, batch: int, image_size: int, precision: str) -> tuple[Plan, PhotoBatch]:
    graph = with_loss(build(model, CLASSES, image_size), 0.0, ())
    plan = compile_plan(graph, device=device, batch=batch, training=True, precision=precision,
                        optimizer=Optimizer("adam"))
    plan.load(initial_weights(graph, 0))
    return plan, random_photos(batch, image_size, CLASSES)
