"""Compiles a graph to a plan on the CPU or on a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from core.communicator import Communicator
from core.device import Optimizer, Plan
from core.errors import DeviceError, InputError
from core.gpu.hardware import NO_DRIVER, has_driver
from core.graph import Graph
from core.ops.contract import Array
from core.ops.op_table import LOSSES

DEVICES: Final = ("auto", "cpu", "cuda")
PRECISIONS: Final = ("float32", "tf32", "mixed")
NO_PACKAGES: Final = "The CUDA packages are not installed ({}). Install them with: pip install '.[cuda]'"


def compile_plan(
    graph: Graph, *, device: str = "cpu", batch: int = 1, training: bool = False, precision: str = "float32",
    algorithm: str = "auto", optimizer: Optimizer | None = None, outputs: Sequence[str] = (),
    frozen: Sequence[str] = (), seed: int = 0, threads: int = 0, verify: bool = False,
    communicator: Communicator | None = None, sync_batch_norm: bool = False,
) -> Plan:  # fmt: skip
    """Compile `graph`, whose last node is the loss when `training` (`core.ops.builder.with_loss`).

    frozen: parameters that keep their values, a bias where its weight does. outputs: further nodes that `predict`
    returns. threads: 0 is all cores. communicator: connects ranks, which may share batch norm's statistics. Never uses
    another device or kernel than requested; "auto" uses CUDA if it is available.
    Raises InputError, DeviceError, KernelUnavailable or OutOfMemory.
    """
    for what, chosen, known in (("device", device, DEVICES), ("precision", precision, PRECISIONS)):
        if chosen not in known:
            raise DeviceError(f"There is no {what} {chosen!r}. Choose one of {', '.join(known)}.")
    if training and graph.nodes[-1].op not in LOSSES:
        raise InputError("A network without a loss cannot be trained; core.ops.builder.with_loss adds it.")
    if unknown := {*outputs}.difference(n.name for n in graph.nodes) | {*frozen}.difference(graph.parameters()):
        raise InputError(f"{graph.name} has no {', '.join(sorted(unknown))}.")
    weights = {f"{name.removesuffix('.weight')}.bias" for name in frozen if name.endswith(".weight")}
    if alone := weights.intersection(graph.parameters()).difference(frozen):
        raise InputError(f"{', '.join(sorted(alone))}: a bias is not trained without its weight.")
    check_device(device)
    wanted: dict[str, Any] = {
        "batch": batch, "training": training, "precision": precision, "algorithm": algorithm, "optimizer": optimizer,
        "outputs": outputs, "frozen": frozen, "seed": seed, "verify": verify, "communicator": communicator,
        "sync_batch_norm": sync_batch_norm,
    }  # fmt: skip
    if choose_device(device) == "cuda":
        from core.gpu.plan import CudaPlan  # numba.cuda costs a second: only where it is used

        return CudaPlan(graph, **wanted)
    from core.cpu.plan import CpuPlan  # compiles kernels at import: only where it is used

    return CpuPlan(graph, threads=threads, **wanted)


def check_device(device: str) -> None:
    """Raise DeviceError if the device is "cuda" and cannot be used here."""
    if device == "cuda" and (problem := cuda_problem()) is not None:
        raise DeviceError(problem)


def choose_device(wanted: str) -> str:
    """Resolve "auto" to "cuda" if a GPU can be opened, else "cpu"."""
    if wanted != "auto":
        return wanted
    return "cuda" if cuda_problem() is None else "cpu"


def count_gpus() -> int:
    if cuda_problem() is not None:
        return 0
    from core.gpu.driver.device import count_devices

    return count_devices()


def cuda_problem() -> str | None:
    """Return why CUDA cannot be used here, as a sentence, or None."""
    if getattr(sys, "frozen", False):
        return "This portable version computes on the CPU. The version installed with pip also uses NVIDIA GPUs."
    if not has_driver():
        return NO_DRIVER
    try:
        from core.gpu.driver.device import problem  # only here: numba.cuda is slow to import
    except ImportError as error:
        return NO_PACKAGES.format(error.name)
    return problem()


def untuned_note() -> str | None:
    """Return a sentence if no kernel was measured on this GPU, else None."""
    from core.gpu.driver.device import open_device
    from core.gpu.tuning import load_table

    device = open_device()
    if load_table(device.identity).entries:
        return None
    return (
        f"No kernel was measured on the {device.name} yet, so they are chosen by an estimate. To measure them once, "
        "which takes some minutes: --tune, or leafclinic lab tune."
    )


def tune_training(graph: Graph, weights: Mapping[str, Array], batch: int, precision: str) -> Iterator[tuple[int, int]]:
    """Measure which kernels are fastest for a training plan on the GPU; yield (cases measured, all cases)."""
    from core.gpu.tuner import TuningTarget, tune_into

    target = TuningTarget(graph.name, graph, weights, batch, precision, True)
    for event in tune_into(None, target, f"leafclinic train --tune ({graph.name}, batch {batch}, {precision})"):
        yield event.done, event.total
