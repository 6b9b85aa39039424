"""Which kernel each step of a network's plan runs on a GPU, and why; with a GPU, what it takes in the captured step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from core.device import Optimizer, PhotoBatch
from core.errors import DeviceError
from core.laboratory.tuning import Planned, target_of
from core.ops.photo import identity_augmentation
from core.plan import cuda_problem
from core.program import lower

if TYPE_CHECKING:
    from core.gpu.explain import Explained

ROUNDS: Final = 20
"""Replays by which the whole step is timed."""


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """Every choice of a plan; where a GPU is there, microseconds inside the captured step, and of the whole."""

    choices: tuple[Explained, ...]
    origins: tuple[str, ...] = ()
    measured: Mapping[Explained, float] | None = None
    others: Mapping[str, float] | None = None
    whole: float = 0.0

    @property
    def parts(self) -> float:
        """Microseconds of all that is measured, choices and others."""
        return sum((self.measured or {}).values()) + sum((self.others or {}).values())


def explain_plan(planned: Planned, capability: tuple[int, int] | None = None, algorithm: str = "auto") -> Explanation:
    """The plan on the present GPU, which is measured, or on one of a compute capability; without either on 9.0.

    Raises DeviceError or KernelUnavailable.
    """
    try:
        from core.gpu.explain import explain, frame_for  # numba.cuda costs a second: only where it is used
        from core.gpu.launch import RELU
    except ImportError as error:
        raise DeviceError(cuda_problem() or str(error)) from error
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
    from core.gpu.plan import CudaPlan

    target, batch, side = target_of(planned), planned.batch, planned.image_size
    plan = CudaPlan(
        target.graph, batch=batch, training=planned.training, precision=planned.precision, algorithm=algorithm,
        optimizer=Optimizer("adam") if planned.training else None,
    )  # fmt: skip
    plan.load(target.weights)
    index = np.arange(batch, dtype=np.int32)
    photos = np.random.default_rng(0).integers(0, 256, (batch, side, side, 3)).astype(np.uint8)
    plan.keep_photos(photos)
    rows = PhotoBatch(None, identity_augmentation(batch, (side, side), (side, side)), index % 2, index)
    choices = tuple(explain(plan.frame))
    measured, others = inside(choices, plan.time_inside(rows))
    whole = 1e3 * plan.replay_milliseconds(rows, ROUNDS)
    plan.close()
    return Explanation(choices, plan.frame.tuning.origins, measured, others, whole)
