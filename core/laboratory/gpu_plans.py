"""Plans on a GPU: tune their kernels, and explain which kernel each step runs and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from core.errors import DeviceError
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.plan import NO_PACKAGES, check_device, cuda_problem
from core.program import fold_batch_norm, fold_weights, lower

if TYPE_CHECKING:
    from core.gpu.explain import Explained
    from core.gpu.tuner import TuningProgress, TuningTarget

ROUNDS: Final = 20
"""Replays of the whole step to time it."""
CLASSES: Final = 10


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan to tune: a network by name, batch, precision, and whether it trains."""

    model: str
    batch: int
    precision: str
    training: bool
    image_size: int = 224

    def __str__(self) -> str:
        return f"{self.model}, {'training' if self.training else 'inference'}, batch {self.batch}, {self.precision}"


STANDARD: Final = (
    Planned("squeezenet1_0", 256, "mixed", True), Planned("squeezenet1_0", 32, "mixed", True),
    Planned("squeezenet1_0", 256, "mixed", False), Planned("squeezenet1_0", 1, "mixed", False),
    Planned("mobilenetv2", 256, "mixed", True), Planned("mobilenetv2", 1, "mixed", False),
    Planned("squeezenet1_1", 256, "mixed", True), Planned("squeezenet1_1_bn", 128, "mixed", True),
    Planned("squeezenet1_0", 32, "float32", True), Planned("squeezenet1_1", 1, "mixed", False),
    Planned("mobilenetv2", 32, "mixed", True), Planned("mobilenetv2", 256, "mixed", False),
)
"""Default plans to tune, those of `benchmarks.gpu_train_step` first."""


def plans(models: Sequence[str], batches: Sequence[int], precisions: Sequence[str], what: str) -> tuple[Planned, ...]:
    """The plans of the options; without models and batches the standard ones, where these have such plans.

    what: "training", "inference" or "both".
    """
    trains = {"training": (True,), "inference": (False,), "both": (True, False)}[what]
    found = [p for p in STANDARD if p.training in trains and (not precisions or p.precision in precisions)]
    if models or batches or not found:
        chosen = product(models or ("squeezenet1_1",), batches or (32,), precisions or ("mixed",), trains)
        found = [Planned(*one) for one in chosen]
    return tuple(found)


def tune_plans(
    wanted: Sequence[Planned], minutes: float, out: Path | None, command: str, commit: str
) -> Iterator[TuningProgress]:
    """Tune on this machine's GPU; writes the user's table, or `out`. Raises DeviceError without a GPU."""
    check_device("cuda")
    from core.gpu.tuner import tune_into  # numba.cuda costs a second: only where it is used

    deadline = monotonic() + (60 * minutes if minutes else math.inf)
    for planned in wanted:
        if monotonic() < deadline:
            yield from tune_into(out, target_of(planned), command, deadline, commit)


def target_of(planned: Planned) -> TuningTarget:
    from core.gpu.tuner import TuningTarget

    base = build(planned.model, CLASSES, planned.image_size)
    weights = initial_weights(base, 0)
    graph = with_loss(base, 0.0, ()) if planned.training else fold_batch_norm(base)
    weights = weights if planned.training else fold_weights(base, weights)
    return TuningTarget(str(planned), graph, weights, planned.batch, planned.precision, planned.training)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choices of a plan; with a GPU, microseconds inside the captured step and of the whole step."""

    choices: tuple[Explained, ...]
    origins: tuple[str, ...] = ()
    measured: Mapping[Explained, float] | None = None
    others: Mapping[str, float] | None = None
    whole: float = 0.0

    @property
    def parts(self) -> float:
        return sum((self.measured or {}).values()) + sum((self.others or {}).values())


def explain_plan(planned: Planned, capability: tuple[int, int] | None, algorithm: str = "auto") -> Explanation:
    """Explain the plan for a compute capability; by default for this machine's GPU, which is measured, else for 9.0.

    Needs the CUDA packages, but no GPU. Raises DeviceError or KernelUnavailable.
    """
    try:
        from core.gpu.explain import explain, frame_for  # numba.cuda costs a second: only where it is used
        from core.gpu.launch import RELU
    except ImportError as error:
        raise DeviceError(NO_PACKAGES.format(error.name)) from error
    if capability is None and cuda_problem() is None:
        return _measure(planned, algorithm)
    program = lower(target_of(planned).graph, planned.training, fused=RELU)
    frame = frame_for(program, planned.batch, planned.precision, capability or (9, 0), algorithm)
    return Explanation(tuple(explain(frame)))


def list_gpus() -> list[tuple[str, str]]:
    """GPUs to choose from, newest first, each with its compute capability: "" for the one of this computer."""
    from core.gpu.hardware import TYPICAL

    here = [] if cuda_problem() else [("This computer", "")]
    return here + [(name, ".".join(map(str, gpu.capability))) for name, gpu in reversed(TYPICAL.items())]


def _measure(planned: Planned, algorithm: str) -> Explanation:
    from core.gpu.explain import explain, inside
    from core.gpu.tuner import ready_plan

    plan, batch = ready_plan(target_of(planned), algorithm=algorithm)
    choices = tuple(explain(plan.frame))
    measured, others = inside(choices, plan.time_inside(batch))
    whole = 1e3 * plan.replay_milliseconds(batch, ROUNDS)
    plan.close()
    return Explanation(choices, plan.frame.tuning.origins, measured, others, whole)
