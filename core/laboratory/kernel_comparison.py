"""Compares all kernels of an op on layers of real networks: checks each against float64, times it, finds its source."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from core.config import OPTIMIZERS
from core.cpu.kernel_entries import results_of
from core.cpu.single import Single
from core.graph import LABEL, PHOTO, Node
from core.laboratory.convolutions import LABORATORY
from core.laboratory.timing import PRODUCT, bare_run, random_arrays, time_on_host
from core.ops.builder import make_node
from core.ops.contract import Array, Mode
from core.ops.network import compute_case
from core.ops.op_table import OPS
from core.ops.registry import Kernel, KernelCase, rank
from core.optim.optimizer import Optimizer, initial_state, update
from core.plan import cuda_problem

ROOT: Final = Path(__file__).resolve().parents[2]
MODE: Final = Mode(training=True)
LOSS: Final = "softmax_cross_entropy"
RATE: Final = 0.01
STEP: Final = 3
"""Learning rate and step number of the optimizer updates."""


def make_case(op: str, shape: tuple[int, ...], batch: int, **attributes: Any) -> KernelCase:
    """Return a case of one input, given without the batch; the op's shape rule gives its output."""
    known = {PHOTO: Node(PHOTO, "photo", (), (1, 1, 3)), "x": Node("x", "photo", (), shape)}
    inputs = ("x", LABEL) if op == LOSS else ("x",)
    node = make_node(op, "node", inputs, attributes, known)
    return KernelCase(op, node.attributes, (shape,), node.shape, batch)


SAME: Final = (1, 1, 1, 1)
CASES: Final[Mapping[str, Mapping[str, KernelCase]]] = {
    "conv2d": {
        "fire 3x3, 28 x 28 x 32 to 128, batch 8":
            make_case("conv2d", (28, 28, 32), 8, filters=128, kernel=(3, 3), padding=SAME),
        "fire 1x1, 28 x 28 x 256 to 32, batch 8": make_case("conv2d", (28, 28, 256), 8, filters=32, kernel=(1, 1)),
        "first 3x3 / 2, 224 x 224 x 3 to 64, batch 2":
            make_case("conv2d", (224, 224, 3), 2, filters=64, kernel=(3, 3), stride=(2, 2)),
        "fire 3x3, 13 x 13 x 64 to 256, batch 8":
            make_case("conv2d", (13, 13, 64), 8, filters=256, kernel=(3, 3), padding=SAME),
    },
    "dense": {"512 to 37, batch 32": make_case("dense", (512,), 32, units=37)},
    "depthwise_conv2d": {
        "3x3, 28 x 28 x 192, batch 8": make_case("depthwise_conv2d", (28, 28, 192), 8, kernel=(3, 3), padding=SAME)
    },
    "max_pool": {
        "3x3 / 2, 56 x 56 x 64, batch 8": make_case("max_pool", (56, 56, 64), 8, kernel=(3, 3), stride=(2, 2))
    },
    "batch_norm": {"28 x 28 x 128, batch 8": make_case("batch_norm", (28, 28, 128), 8)},
    "global_avg_pool": {"13 x 13 x 512, batch 8": make_case("global_avg_pool", (13, 13, 512), 8)},
    "relu": {"56 x 56 x 64, batch 8": make_case("relu", (56, 56, 64), 8)},
    "dropout": {"13 x 13 x 512, batch 8": make_case("dropout", (13, 13, 512), 8)},
    PRODUCT: {
        f"{m} x {k} by {k} x {n}": KernelCase(PRODUCT, MappingProxyType({}), ((m, k), (k, n)), (m, n), 1)
        for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (32, 27, 14884))
    },
    LOSS: {"38 classes, batch 256": make_case(LOSS, (38,), 256, label_smoothing=0.1)},
}
"""Named cases of each op, from SqueezeNet and MobileNetV2; the last product is SqueezeNet's first layer as im2col."""
UPDATES: Final[Mapping[str, Mapping[str, KernelCase]]] = {
    op: {"735424 weights": KernelCase(op, MappingProxyType({}), ((735424,),), (735424,), 1)} for op in OPTIMIZERS
}
"""The optimizers on as many weights as SqueezeNet 1.0 has."""


@dataclass(frozen=True, slots=True)
class KernelResult:
    """The result of one kernel: median milliseconds, GFLOP/s, largest relative error; or why it cannot run."""

    kernel: Kernel
    milliseconds: float = 0.0
    gflops: float = 0.0
    error: float = 0.0
    reason: str = ""

    @property
    def right(self) -> bool:
        return not self.reason and self.error <= self.kernel.tolerance


def list_kernels(ops: Collection[str] = CASES) -> list[Kernel]:
    """Return all kernels of these ops, on every device whose packages are installed, simplest first."""
    kernels = [*LABORATORY.kernels]
    with contextlib.suppress(ImportError):  # `cuda_problem` says which packages are missing
        from core.gpu.kernel_entries import TABLE

        kernels += TABLE.kernels
    return sorted((k for k in kernels if k.op in ops), key=lambda k: (k.device, rank(k.algorithm)))


def compare_kernels(case: KernelCase, direction: str, device: str = "") -> Iterator[KernelResult]:
    """Check and time every kernel of an op and direction, on one device or all, one result at a time."""
    given, wanted = solve_update(case) if case.op in OPTIMIZERS else solve(case)
    names = list(wanted) if direction == "update" else results_of(direction, wanted)
    missing = cuda_problem()
    for kernel in list_kernels((case.op,)):
        if kernel.direction != direction or device not in ("", kernel.device):
            continue
        reason = (missing if kernel.device == "cuda" else "") or kernel.refuses(case)
        if reason:
            yield KernelResult(kernel, reason=reason)
            continue
        arrays: dict[str, Any] = {**given, "mode": MODE}
        if direction.startswith("backward"):
            arrays["out"] = np.ascontiguousarray(wanted["out"], np.float32)
        poisoned = {name: np.full(wanted[name].shape, np.nan, np.float32) for name in names}
        arrays |= {name: given[name].copy() if name in given else poisoned[name] for name in names}
        kernel.run(case, arrays)
        error = max(_error(np.asarray(arrays[name]), wanted[name]) for name in names)
        milliseconds = _time(kernel, case, arrays)
        flops = 0 if case.op in OPTIMIZERS else cost_of(case)[0]
        yield KernelResult(kernel, milliseconds, flops / milliseconds / 1e6, error)


def solve(case: KernelCase) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return random float32 arrays for a case (inputs, parameters, dy), and every result in float64."""
    given = random_arrays(case)
    exact = {name: value.astype(np.float64) if name != "labels" else value for name, value in given.items()}
    return given, {"out": exact["x"] @ exact["x2"]} if case.op == PRODUCT else compute_case(case, exact, MODE)


def solve_update(case: KernelCase, optimizer: Optimizer | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return random weights, gradient and state of an optimizer's third step, and its results in float64."""
    random, size = np.random.Generator(np.random.Philox(0)), case.output[0]
    optimizer = optimizer or Optimizer(case.op, weight_decay=0.01, average=0.9)
    weights, gradient = (random.standard_normal(size, np.float32) for _ in range(2))
    state = {k: np.abs(random.standard_normal(size, np.float32)) for k in initial_state(optimizer, weights)}
    decayed, exact = np.arange(size) % 9 > 0, {k: v.astype(np.float64) for k, v in state.items()}
    new, moved = update(optimizer, weights.astype(np.float64), gradient.astype(np.float64), exact, decayed, RATE, STEP)
    given = {"weights": weights, "gradient": gradient, "decayed": decayed.astype(np.float32), **state}
    return {**given, "optimizer": optimizer, "learning_rate": RATE, "step": STEP}, {"weights": new, **moved}


def cost_of(case: KernelCase) -> tuple[int, int]:
    """Return the FLOPs of a case and the fewest bytes moved: activations of the whole batch, and weights."""
    if case.op == PRODUCT:
        (m, k), (_, n) = case.inputs
        return 2 * m * k * n, 4 * (m * k + k * n + m * n)
    op = OPS[case.op]
    weights = sum(weight.size for weight in op.parameters(case.attributes, case.inputs))
    cost = op.cost(case.attributes, case.inputs, case.output).of_batch(case.batch, weights)
    return cost.flops, cost.bytes


def source(kernel: Kernel) -> tuple[str, str]:
    """Return (path from the repository's root, text) of a kernel's source: one function or its whole file."""
    text = ""
    if kernel.device == "cuda":
        from core.gpu.kernel_entries import source_file

        file = source_file(kernel, CASES[kernel.op].values())
    elif kernel.algorithm == "reference":
        file = ROOT / (OPS[kernel.op].forward.__module__.replace(".", "/") + ".py")
    elif kernel.writers is not None:
        single = Single(next(iter(CASES[kernel.op].values())), kernel.writers, 1)
        file = Path(inspect.getfile((*single.forward, *single.backward)[0].kernel))
    else:
        function = kernel.run
        while isinstance(function, partial):
            function = next((a for a in function.args if callable(a)), function.func)
        function = inspect.unwrap(function)
        file, text = Path(inspect.getfile(function)), inspect.getsource(function)
    return file.relative_to(ROOT).as_posix(), text or file.read_text("utf-8")


def _error(got: Array, want: Array) -> float:
    """Return the largest error relative to the largest value; infinite where a NaN is left."""
    difference = float(np.abs(got.astype(np.float64) - want).max(initial=0.0))
    return difference / max(float(np.abs(want).max(initial=0.0)), 1e-30) if difference == difference else float("inf")


def _time(kernel: Kernel, case: KernelCase, arrays: dict[str, Any]) -> float:
    """Return the median milliseconds without copies from and to the host, synchronizing after each run."""
    if kernel.device != "cuda":
        return time_on_host(bare_run(kernel, case, arrays))
    from core.gpu.compilation.cuda import cuda

    there = {k: cuda.to_device(v) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}

    def run() -> None:
        kernel.run(case, there)
        cuda.synchronize()

    return time_on_host(run)
