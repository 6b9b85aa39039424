"""The launches after the gradient: its norm and the step's result, the optimizer, the packed filters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from core.gpu.frame import Frame, Places
from core.gpu.kernels.passes import update_fast
from core.gpu.launch import THREADS, Launch, blocks_of, simple_launch
from core.ops.contract import Array, volume
from core.optim.optimizer import Optimizer
from core.program import ParameterLayout


@final
@dataclass(frozen=True, slots=True)
class UpdateArrays:
    """Addresses of the optimizer's arrays; average 0 means none is kept."""

    first: int
    second: int
    average: int
    roles: int
    sums: int
    result: int


def roles_of(layout: ParameterLayout, frozen: frozenset[str]) -> Array:
    """uint8 for every trained float: 0 stays as it is, 1 learns, 2 decays too."""
    roles = np.zeros(layout.trained, np.uint8)
    decayed = {first for first, _ in layout.decayed}
    for name, (first, shape) in layout.offsets.items():
        if first < layout.trained and name not in frozen:
            roles[first : first + volume(shape)] = 2 if first in decayed else 1
    return roles


def result_launches(places: Places, count: int, batch: int, arrays: UpdateArrays) -> list[Launch]:
    """Norm of the gradient of `count` floats, and loss, hits and norm for the host."""
    norm = simple_launch(
        "all", "update", "norm", "passes.update_fast", "norm", (), update_fast.NORM_ARGUMENTS,
        (update_fast.NORM_BLOCKS, 1, 1), (128, 1, 1), (places.gradient, arrays.sums, count),
    )  # fmt: skip
    return [
        replace(norm, join=True),
        simple_launch(
            "all", "update", "result", "passes.update_fast", "result", (), update_fast.RESULT_ARGUMENTS,
            (1, 1, 1), (128, 1, 1), (arrays.sums, places.results, places.control, arrays.result, batch),
        ),
    ]  # fmt: skip


def update_launch(places: Places, count: int, processors: int, optimizer: Optimizer, arrays: UpdateArrays) -> Launch:
    """The optimizer's step over `count` weights."""
    o = optimizer
    values = (
        places.weights, places.gradient, arrays.first, arrays.second, arrays.average, arrays.roles, places.control,
        arrays.result, count, o.momentum, o.weight_decay, o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2, o.epsilon,
        o.clip_norm,
    )  # fmt: skip
    grid = (min(blocks_of(count, THREADS), 8 * processors), 1, 1)
    return simple_launch(
        "all", "update", o.name, "passes.update_fast", "make_update", (o.name, o.nesterov), update_fast.ARGUMENTS, grid,
        (THREADS, 1, 1), values,
    )


def pack_launch(frame: Frame) -> Launch:
    """Packed copies of the weights for the matrix kernels."""
    count = frame.packed_count
    return simple_launch(
        "all", "update", "pack", "passes.update_fast", "make_pack", (frame.element,), update_fast.PACK_ARGUMENTS,
        (blocks_of(max(count, 2), 2 * THREADS), 1, 1), (THREADS, 1, 1),
        (frame.places.weights, frame.places.pack_places, frame.places.packed, count),
    )
