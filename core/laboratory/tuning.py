"""Tuning on the command line: which plans, where their measurements are kept, and how far it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from core.errors import DeviceError
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.plan import cuda_problem
from core.program import fold_batch_norm, fold_weights

if TYPE_CHECKING:
    from core.gpu.tuner import TuningProgress, TuningTarget

CLASSES: Final = 10


@final
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
"""What is tuned where nothing else is named: the plans of `benchmarks.gpu_train_step` first."""


def plans(models: Sequence[str], batches: Sequence[int], precisions: Sequence[str], what: str) -> tuple[Planned, ...]:
    """Those that the options name, or the standard ones; `what` is "training", "inference" or "both"."""
    trains = {"training": (True,), "inference": (False,), "both": (True, False)}[what]
    if models or batches:
        found = product(models or ("squeezenet1_1",), batches or (32,), precisions or ("mixed",), trains)
        return tuple(Planned(*one) for one in found)
    return tuple(p for p in STANDARD if p.training in trains and (not precisions or p.precision in precisions))


def tune_plans(
    wanted: Sequence[Planned], minutes: float, out: Path | None, command: str, commit: str
) -> Iterator[TuningProgress]:
    """Measure on the present GPU into the user's table, or into `out`. Raises DeviceError without a GPU."""
    trouble = cuda_problem()
    if trouble:
        raise DeviceError(trouble)
    from core.gpu import tuner, tuning  # numba.cuda costs a second: only where it is used
    from core.gpu.driver.device import open_device

    device, deadline = open_device(), monotonic() + (60 * minutes if minutes else math.inf)
    path, gpu = out or tuning.make_user_path(open_device().identity), open_device().identity
    measured = dict(tuning.read_table(path)[1]) if path.exists() else {}
    for planned in wanted:
        if monotonic() < deadline:
            before = tuning.load_table(gpu).with_entries(measured)
            yield from tuner.tune(
                device, target_of(planned), before, measured,
                lambda entries: tuning.write_table(path, gpu, entries, command, commit), deadline,
            )  # fmt: skip


def target_of(planned: Planned) -> TuningTarget:
    """The plan with its network and initial weights."""
    from core.gpu.tuner import TuningTarget

    base = build(planned.model, CLASSES, planned.image_size)
    weights = initial_weights(base, 0)
    graph = with_loss(base, 0.0, ()) if planned.training else fold_batch_norm(base)
    weights = weights if planned.training else fold_weights(base, weights)
    return TuningTarget(str(planned), graph, weights, planned.batch, planned.precision, planned.training)
