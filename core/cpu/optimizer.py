"""The optimizer of a CPU plan: its flat arrays, and the records of its norm and update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import numpy as np

from core.cpu import update as kernel
from core.cpu.lowering import Lowering
from core.cpu.memory import F32, aligned
from core.cpu.records import Address, Record, Space
from core.errors import ModelFileError
from core.ops.contract import Array
from core.optim.optimizer import Optimizer, clip_factor, moments, scalars

RULES: Final = {"sgd": kernel.SGD, "adam": kernel.ADAM, "adamw": kernel.ADAMW}


@final
class CpuOptimizer:
    """Moments and running average, each with as many floats as the trained weights."""

    def __init__(self, optimizer: Optimizer, lowering: Lowering) -> None:
        self.optimizer, self.step = optimizer, 0
        self._lowering = lowering
        count = lowering.layout.trained
        self.arrays: dict[str, F32] = {name: aligned(count) for name in moments(optimizer)}
        if optimizer.average > 0:
            self.arrays["average"] = aligned(count)
        self._settings = lowering.memory(kernel.SETTING_COUNT)
        self._sums = np.zeros(max(1, -(-count // kernel.CHUNK)), np.float64)
        self._roles = _roles(lowering)
        self.records = self._write_records(count)

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values()) + self._roles.nbytes + self._sums.nbytes

    def start_average(self, weights: F32) -> None:
        """The running average starts at the weights that are loaded."""
        if "average" in self.arrays:
            self.arrays["average"][:] = weights[: self._lowering.layout.trained]

    def norm(self, parts: int) -> float:
        """Norm of the mean gradient after the norm's record ran."""
        return float(np.sqrt(self._sums.sum())) / max(parts, 1)

    def prepare(self, learning_rate: float, parts: int) -> None:
        """Count the step and set the scalars that the update's record reads."""
        self.step += 1
        now, o = scalars(self.optimizer, learning_rate, self.step), self.optimizer
        clip = clip_factor(o, self.norm(parts))
        self._settings[:] = (
            now.rate, now.root, now.shrink, now.average, clip, parts, o.momentum, float(o.nesterov),
            o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2, o.epsilon, o.weight_decay,
        )  # fmt: skip

    def state(self) -> dict[str, Array]:
        return {**{name: array.copy() for name, array in self.arrays.items()}, "step": np.array(self.step, np.int64)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Raises ModelFileError where an array is missing or of another length."""
        for name, array in self.arrays.items():
            if name not in state or np.shape(state[name]) != array.shape:
                raise ModelFileError(f"The optimizer state in this checkpoint does not fit: {name!r} is not there or "
                                     f"not {array.size} numbers long. It belongs to other settings.")
        for name, array in self.arrays.items():
            array[:] = state[name]
        self.step = int(state["step"])

    def _write_records(self, count: int) -> list[Record]:
        names = list(moments(self.optimizer))
        fields: dict[int, int | Address] = {
            kernel.COUNT: count,
            kernel.WEIGHTS: _at(self._lowering.weights), kernel.GRADIENT: _at(self._lowering.gradient),
            kernel.FIRST: _at(self.arrays[names[0]]), kernel.SECOND: _at(self.arrays[names[-1]]),
            kernel.AVERAGE: _at(self.arrays["average"]) if "average" in self.arrays else 0,
            kernel.ROLE: _at(self._roles), kernel.SETTINGS: _at(self._settings), kernel.SUMS: _at(self._sums),
            kernel.RULE: RULES[self.optimizer.name],
        }  # fmt: skip
        chunks = -(-count // kernel.CHUNK)
        return [Record(run, fields, chunks, "all", "update", "fused") for run in (kernel.run_norm, kernel.run_update)]


def _at(array: Array) -> Address:
    return Address(Space.SHARED, array.ctypes.data)


def _roles(lowering: Lowering) -> Array:
    """One byte per trained float: padding and frozen parameters are idle."""
    roles = np.zeros(lowering.layout.trained, np.uint8)
    decayed = {first for first, _ in lowering.layout.decayed}
    for name, (first, shape) in lowering.layout.offsets.items():
        if first < lowering.layout.trained and name not in lowering.frozen:
            size = int(np.prod(shape))
            roles[first : first + size] = kernel.DECAYS if first in decayed else kernel.LEARNS
    return roles
