"""Which kernel each step of a network's plan runs on a GPU, and why; with a GPU, what it takes in the captured step."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from core.device import Optimizer, PhotoBatch
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


def explain_plan(arguments: argparse.Namespace) -> Explanation:
    """The plan that the arguments describe, on the present GPU or one of a compute capability.

    Raises DeviceError or KernelUnavailable.
    """
    from core.gpu.explain import explain, frame_for  # numba.cuda costs a second: only where it is used
    from core.gpu.launch import RELU
    a = arguments
    planned = Planned(a.model, a.batch, a.precision, a.training, a.image_size)
    if a.capability is None and cuda_problem() is None:
        return _measure(planned, a.algorithm)
    program = lower(target_of(planned).graph, a.training, fused=RELU)
    return Explanation(tuple(explain(frame_for(program, a.batch, a.precision, a.capability or (9, 0), a.algorithm))))


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
