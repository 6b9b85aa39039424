"""The launches after the gradient: its norm and the step's result, the optimizer, the packed filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from core.gpu.frame import Addresses, Frame
from core.gpu.launch import THREADS, KernelSignature, Launch, blocks_of, make_launch
from core.gpu.ops.update import optimizer
from core.ops.contract import Array, volume
from core.optim.optimizer import Optimizer
from core.program import ParameterLayout

NORM: Final = "norm"
"""The launch that reads the whole gradient first: ranks average theirs in front of it."""


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


def result_launches(places: Addresses, count: int, batch: int, arrays: UpdateArrays) -> list[Launch]:
    """Norm of the gradient of `count` floats, and loss, hits and norm for the host."""
    return [_norm_launch(places, count, arrays), result_launch(places, batch, arrays)]


def average_launches(places: Addresses, count: int, arrays: UpdateArrays) -> list[Launch]:
    """The same where the gradient, loss and hits are averaged over ranks just before the first of these launches."""
    values = {"sums": arrays.sums, "control": places.control, "out": arrays.result}
    signature = optimizer.NORM_RESULT
    return [
        _norm_launch(places, count, arrays),
        _launch("norm_result", "norm_result", (), signature, values, (1, 1, 1), (optimizer.NORM_BLOCKS, 1, 1)),
    ]


def _norm_launch(places: Addresses, count: int, arrays: UpdateArrays) -> Launch:
    values = {"gradient": places.gradient, "sums": arrays.sums, "count": count}
    block = (optimizer.NORM_BLOCKS, 1, 1)
    return _launch(NORM, "norm", (), optimizer.NORM, values, block, block, join=True)


def result_launch(places: Addresses, batch: int, arrays: UpdateArrays) -> Launch:
    values = {
        "sums": arrays.sums, "results": places.results, "control": places.control, "out": arrays.result, "batch": batch,
    }  # fmt: skip
    return _launch("result", "result", (), optimizer.RESULT, values, (1, 1, 1), (optimizer.NORM_BLOCKS, 1, 1))


def update_launch(places: Addresses, count: int, processors: int, rule: Optimizer, arrays: UpdateArrays) -> Launch:
    """The optimizer's step over `count` weights."""
    values = {
        "weights": places.weights, "gradient": places.gradient, "first": arrays.first, "second": arrays.second,
        "average": arrays.average, "roles": arrays.roles, "control": places.control, "result": arrays.result,
        "count": count, "momentum": rule.momentum, "decay": rule.weight_decay, "beta1": rule.beta1,
        "rest1": 1 - rule.beta1, "beta2": rule.beta2, "rest2": 1 - rule.beta2, "epsilon": rule.epsilon,
        "clip": rule.clip_norm,
    }  # fmt: skip
    grid = (min(blocks_of(count, THREADS), 8 * processors), 1, 1)
    return _launch(rule.name, "make_update", (rule.name, rule.nesterov), optimizer.UPDATE, values, grid)


def pack_launch(frame: Frame) -> Launch:
    """Packed copies of the weights for the matrix kernels."""
    places, count = frame.addresses, frame.packed_count
    values = {"weights": places.weights, "places": places.pack_places, "packed": places.packed, "count": count}
    grid = (blocks_of(max(count, 2), 2 * THREADS), 1, 1)
    return _launch("pack", "make_pack", (frame.element,), optimizer.PACK, values, grid)


def _launch(
    kernel: str, factory: str, constants: tuple[Any, ...], signature: KernelSignature, values: dict[str, Any],
    grid: tuple[int, int, int], block: tuple[int, int, int] = (THREADS, 1, 1), **more: Any,
) -> Launch:  # fmt: skip
    made = ("ops.update.optimizer", factory, constants)
    return make_launch("all", "update", kernel, made, signature, values, grid, block, **more)
