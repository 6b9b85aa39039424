"""One training iteration of a network by every algorithm of every device and by PyTorch, in total and per module."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, TypeAlias, cast

import numpy as np

from core.device import Optimizer, PhotoBatch, Plan
from core.diagnosis.onnx_model import prepare
from core.errors import DeviceError, KernelUnavailable
from core.graph import Graph
from core.laboratory import pytorch_baseline
from core.laboratory.timing import random_photos, time_on_host
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.plan import compile_plan

ModuleTimes: TypeAlias = dict[str, tuple[float, float]]
"""Module name to milliseconds of its forward and of its backward kernels."""
FAST: Final = 20.0
"""Milliseconds of an iteration below which GPU kernels are timed inside the captured step: launches take longer."""
WAYS: Final = (
    ("cpu", "naive", "float32"), ("cpu", "im2col", "float32"), ("cpu", "auto", "float32"),
    ("cuda", "naive", "float32"), ("cuda", "shared", "float32"), ("cuda", "im2col", "float32"),
    ("cuda", "tensor_core", "float32"), ("cuda", "auto", "float32"), ("cuda", "auto", "tf32"),
    ("cuda", "auto", "mixed"), ("cpu", pytorch_baseline.NAME, "float32"), ("cuda", pytorch_baseline.NAME, "float32"),
    ("cuda", pytorch_baseline.NAME, "tf32"), ("cuda", pytorch_baseline.NAME, "mixed"),
)  # fmt: skip
"""(device, algorithm, precision), simplest first."""
SECONDS: Final = 3.0
"""Time limit for the repeats of one algorithm."""
REPEATS: Final = 15
WARM_UP: Final = 3
"""Runs of PyTorch before it is timed: it loads cuDNN and tries its algorithms, which takes seconds."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Median milliseconds of forward and backward pass, and the loss; or why it cannot run here."""

    device: str
    algorithm: str
    precision: str
    milliseconds: float = 0.0
    loss: float = 0.0
    reason: str = ""
    modules: ModuleTimes = field(default_factory=dict)


def algorithm_study(
    model: str, batch: int, image_size: int, devices: tuple[str, ...], by_module: bool = False,
    ways: Iterable[tuple[str, str, str]] = WAYS,
) -> Iterator[Iteration]:  # fmt: skip
    """Time forward and backward pass on `batch` random photos on the device; by_module: also per module."""
    graph, given = build(model, 38, image_size, dropout=0.0), random_photos(batch, image_size, 38)
    for device, algorithm, precision in ways:
        if device not in devices:
            continue
        modules: ModuleTimes = {}
        try:
            if algorithm == pytorch_baseline.NAME:
                milliseconds, loss = _time(_torch_iteration(graph, device, precision, given))
            else:
                milliseconds, loss = _time_plan(graph, device, algorithm, precision, given, modules, by_module)
        except (DeviceError, KernelUnavailable) as error:
            yield Iteration(device, algorithm, precision, reason=str(error))
            continue
        yield Iteration(device, algorithm, precision, milliseconds, loss, modules=modules)


def _time_plan(
    graph: Graph, device: str, algorithm: str, precision: str, given: PhotoBatch, modules: ModuleTimes, by_module: bool
) -> tuple[float, float]:
    """Milliseconds and loss with the photos on the device; by_module: times of modules are added to `modules`."""
    plan = compile_plan(
        with_loss(graph, 0.0, ()), device=device, batch=len(given.labels), training=True, precision=precision,
        algorithm=algorithm, optimizer=Optimizer("sgd"),
    )  # fmt: skip
    plan.load(initial_weights(graph, 0))
    plan.keep_photos(cast("Array", given.photos))
    given = replace(given, photos=None, index=np.arange(plan.batch))
    try:
        milliseconds, loss = _time(lambda: plan.gradient(given).loss)
        if by_module:
            modules |= time_modules(plan, device, given, milliseconds)
        return milliseconds, loss
    finally:
        plan.close()


def _time(run: Callable[[], float]) -> tuple[float, float]:
    """Median milliseconds of `run`, which waits for the device, and its result.

    The first run is not counted, unless it takes so long that it is the only one.
    """
    begin = time.perf_counter()
    loss = run()
    if time.perf_counter() - begin > 2 * SECONDS:
        return 1e3 * (time.perf_counter() - begin), loss
    return time_on_host(run, REPEATS, SECONDS), loss


def _torch_iteration(graph: Graph, device: str, precision: str, given: PhotoBatch) -> Callable[[], float]:
    """The same network and loss in PyTorch, eager, channels last, warmed up. Raises DeviceError where it is missing."""
    if (missing := pytorch_baseline.problem(device)) is not None:
        raise DeviceError(missing)
    torch: Any = import_module("torch")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    weights = pytorch_baseline.parameters_of(graph, initial_weights(graph, 0), device)
    photos = np.ascontiguousarray(prepare(graph, cast("Array", given.photos)).transpose(0, 3, 1, 2))
    x = torch.from_numpy(photos).to(device, memory_format=torch.channels_last)
    y = torch.from_numpy(given.labels).long().to(device)

    def run() -> float:
        for weight in weights.values():
            weight.grad = None
        with torch.autocast(device, torch.bfloat16, enabled=precision == "mixed"):
            loss = torch.nn.functional.cross_entropy(pytorch_baseline.run_graph(graph, weights, x), y)
        loss.backward()
        return float(loss.item())  # waits for the device

    for _ in range(WARM_UP):
        run()
    return run


def time_modules(plan: Plan, device: str, given: PhotoBatch, milliseconds: float) -> ModuleTimes:
    """Time the kernels of a training plan whose iteration takes `milliseconds`; without the optimizer's kernels."""
    if device == "cuda" and milliseconds < FAST:
        from core.gpu.plan import CudaPlan

        assert isinstance(plan, CudaPlan)
        found = [(launch.layer, launch.direction, us / 1e3) for launch, us in plan.time_inside(given)]
    else:
        found = [(one.layer, one.direction, one.milliseconds) for one in plan.time_kernels(given)]
    return add_up((layer, direction, took) for layer, direction, took in found if direction)


def add_up(kernels: Iterable[tuple[str, str, float]]) -> ModuleTimes:
    """(layer, direction, milliseconds) of kernels by module: `features.3` holds the three layers of a fire module."""
    found: ModuleTimes = {}
    for layer, direction, took in kernels:
        module = ".".join(layer.split(".")[:2])
        forward, backward = found.get(module, (0.0, 0.0))
        found[module] = (forward + took, backward) if direction == "forward" else (forward, backward + took)
    return found
