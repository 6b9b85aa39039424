"""The optimizer of a CPU plan: the sum of the threads' gradients, the norm, the update, and the optimizer's arrays.

The update computes what `core.optim.optimizer` does, in chunks that threads share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numba import njit

from core.cpu.lowering import Lowering
from core.cpu.memory import F32, aligned, bytes_at, doubles, floats, words
from core.cpu.records import Address, Fields, Record, Space, address_of
from core.ops.contract import Array
from core.optim.optimizer import RULES, Optimizer, check_state, clip_factor, scalars
from core.program import DECAYS, IDLE, list_roles

CHUNK: int = 4096
"""Floats of one task. The norm sums each chunk first, so that it does not depend on the number of threads."""

# Record. Addresses of flat arrays of COUNT floats; a byte of ROLE for each; SUMS has one float64 per chunk.
COUNT, WEIGHTS, GRADIENT, FIRST, SECOND, AVERAGE, ROLE, SETTINGS, RULE, SUMS = range(1, 11)
"""AVERAGE is 0 without a running average; FIRST is the momentum of SGD."""

SGD, ADAM, ADAMW = range(3)
NUMBERS: Final = {"sgd": SGD, "adam": ADAM, "adamw": ADAMW}

# Settings, float32, as `core.optim.optimizer.scalars` and `Optimizer` give them.
RATE, ROOT, SHRINK, EMA, CLIP, PARTS, MOMENTUM, NESTEROV, BETA1, REST1, BETA2, REST2, EPSILON, DECAY = range(14)
SETTING_COUNT: int = 14


# Record of `run_sum`. The private gradient is (ROWS, N) floats, the filter (N, ROWS).
PRIVATE, PRIVATE_STRIDE, THREADS, FILTER, SUM_ROWS, SUM_N, ADD_TO = range(1, 8)
SUM_COLUMNS: int = 16
"""Columns of one task: a cache line of the private gradient."""


def run_norm(record: int, context: int, image: int, low: int, high: int) -> None:
    """Sum in float64 of the squares, in float32, of every chunk of the gradient. Tasks are chunks."""
    w = words(record)
    gradient = floats(w[GRADIENT], w[COUNT])
    for task in range(low, high):
        total = 0.0
        for i in range(task * CHUNK, min(w[COUNT], (task + 1) * CHUNK)):
            total += float(gradient[i]) * float(gradient[i])
        doubles(w[SUMS], task + 1)[task] = total


def run_update(record: int, context: int, image: int, low: int, high: int) -> None:
    """One optimizer step. Tasks are chunks."""
    w = words(record)
    s = floats(w[SETTINGS], SETTING_COUNT)
    for task in range(low, high):
        start = task * CHUNK
        count = min(w[COUNT] - start, CHUNK)
        x, g = floats(w[WEIGHTS] + start * 4, count), floats(w[GRADIENT] + start * 4, count)
        first, second = floats(w[FIRST] + start * 4, count), floats(w[SECOND] + start * 4, count)
        role = bytes_at(w[ROLE] + start, count)
        if w[RULE] == SGD:
            _sgd(s, x, g, first, role)
        else:
            _adam(w, s, x, g, first, second, role)
        if w[AVERAGE]:
            average = floats(w[AVERAGE] + start * 4, count)
            ema, rest = s[EMA], np.float32(1) - s[EMA]
            for i in range(count):
                average[i] = ema * average[i] + rest * x[i]


@njit(inline="always")
def _sgd(s, x, g, first, role):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    scale, decay, momentum, rate = s[CLIP] / s[PARTS], s[DECAY], s[MOMENTUM], s[RATE]
    own = np.float32(1) if s[NESTEROV] > 0 else np.float32(0)
    behind = momentum if s[NESTEROV] > 0 else np.float32(1)
    for i in range(len(x)):
        p = g[i] * scale + (decay if role[i] == DECAYS else np.float32(0)) * x[i]
        m = momentum * first[i] + p
        learns = role[i] != IDLE
        first[i] = m if learns else first[i]
        x[i] = x[i] - rate * (own * p + behind * m) if learns else x[i]


@njit(inline="always")
def _adam(w, s, x, g, first, second, role):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    zero, one = np.float32(0), np.float32(1)
    joined = s[DECAY] if w[RULE] == ADAM else zero
    shrink = s[SHRINK] if w[RULE] == ADAMW else one
    scale, rate, root, epsilon = s[CLIP] / s[PARTS], s[RATE], s[ROOT], s[EPSILON]
    beta1, rest1, beta2, rest2 = s[BETA1], s[REST1], s[BETA2], s[REST2]
    for i in range(len(x)):
        decays = role[i] == DECAYS
        p = g[i] * scale + (joined if decays else zero) * x[i]
        m = beta1 * first[i] + rest1 * p
        v = beta2 * second[i] + rest2 * p * p
        new = x[i] * (shrink if decays else one) - rate * (m / (np.sqrt(v) * root + epsilon))
        learns = role[i] != IDLE
        first[i] = m if learns else first[i]
        second[i] = v if learns else second[i]
        x[i] = new if learns else x[i]


def run_sum(record: int, context: int, image: int, low: int, high: int) -> None:
    """Compute filter[n, r] = sum over threads of private[thread][r, n], in order, and zero the private sums.

    Tasks are blocks of columns.
    """
    w = words(record)
    rows, columns, threads = w[SUM_ROWS], w[SUM_N], w[THREADS]
    square = np.empty((SUM_COLUMNS, SUM_COLUMNS), np.float32)
    for task in range(low, high):
        first = task * SUM_COLUMNS
        wide = min(columns - first, SUM_COLUMNS)
        for r0 in range(0, rows, SUM_COLUMNS):  # in squares that are read by rows and written by columns
            high_rows = min(rows - r0, SUM_COLUMNS)
            for r in range(high_rows):
                line = w[PRIVATE] + ((r0 + r) * columns + first) * 4
                for t in range(threads):
                    part = floats(line + t * w[PRIVATE_STRIDE], wide)
                    for n in range(wide):
                        square[n, r] = part[n] if t == 0 else square[n, r] + part[n]
                    part[:] = 0
            for n in range(wide):
                out = floats(w[FILTER] + ((first + n) * rows + r0) * 4, high_rows)
                if w[ADD_TO]:
                    for r in range(high_rows):
                        out[r] += square[n, r]
                else:
                    for r in range(high_rows):
                        out[r] = square[n, r]


def sum_records(lowering: Lowering, add: bool, threads: int) -> list[Record]:
    """List the records that sum the threads' gradients into the flat one, in the parameters' own order of axes."""
    records = []
    trained = [(step, p) for step in lowering.program.steps for p in step.parameters
               if lowering.trains(step, p.role) and not lowering.is_together(step)]  # fmt: skip
    for step, parameter in trained:
        groups = 1
        if step.op == "conv2d" and parameter.role == "weight":
            groups = int(step.attributes["groups"])  # type: ignore[arg-type]
        columns, rows = parameter.shape[0] // groups, parameter.size // parameter.shape[0]
        first, _ = lowering.layout.offsets[f"{step.node}.{parameter.role}"]
        for start in range(first, first + groups * rows * columns, rows * columns):
            fields: Fields = {
                PRIVATE: Address(Space.PRIVATE, 4 * start),
                FILTER: address_of(lowering.gradient, start),
                SUM_ROWS: rows, SUM_N: columns, ADD_TO: int(add),
                PRIVATE_STRIDE: 4 * lowering.layout.trained, THREADS: threads,
            }  # fmt: skip
            tasks = -(-columns // SUM_COLUMNS)
            records.append(Record(run_sum, fields, tasks, step.node, "update", "sum"))
    return records


class CpuOptimizer:
    """Moments and running average, each with as many floats as the trained weights."""

    def __init__(self, optimizer: Optimizer, lowering: Lowering) -> None:
        self.optimizer, self.step = optimizer, 0
        count = lowering.layout.trained
        averaged = ("average",) if optimizer.average > 0 else ()
        self.arrays: dict[str, F32] = {name: aligned(count) for name in (*RULES[optimizer.name].moments, *averaged)}
        self._settings = lowering.memory(SETTING_COUNT)
        self._sums = np.zeros(max(1, -(-count // CHUNK)), np.float64)
        self._roles = list_roles(lowering.layout, lowering.frozen)
        self.records = self._write_records(lowering)

    def _write_records(self, lowering: Lowering) -> list[Record]:
        names, count = RULES[self.optimizer.name].moments, lowering.layout.trained
        fields: Fields = {
            COUNT: count, WEIGHTS: address_of(lowering.weights), GRADIENT: address_of(lowering.gradient),
            FIRST: address_of(self.arrays[names[0]]), SECOND: address_of(self.arrays[names[-1]]),
            AVERAGE: address_of(self.arrays["average"]) if "average" in self.arrays else 0,
            ROLE: address_of(self._roles), SETTINGS: address_of(self._settings), SUMS: address_of(self._sums),
            RULE: NUMBERS[self.optimizer.name],
        }  # fmt: skip
        return [Record(run, fields, -(-count // CHUNK), "all", "update", "fused") for run in (run_norm, run_update)]

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in (*self.arrays.values(), self._roles, self._sums))

    def start_average(self, weights: F32) -> None:
        if "average" in self.arrays:
            self.arrays["average"][:] = weights[: len(self.arrays["average"])]

    def norm(self, parts: int) -> float:
        """Return the norm of the mean gradient, once the norm's record has run."""
        return float(np.sqrt(self._sums.sum())) / max(parts, 1)

    def prepare(self, learning_rate: float, parts: int) -> None:
        """Count the step and set the scalars that the update's record reads."""
        self.step += 1
        now, o = scalars(self.optimizer, learning_rate, self.step), self.optimizer
        self._settings[:] = (
            now.rate, now.root, now.shrink, now.average, clip_factor(o, self.norm(parts)), parts, o.momentum,
            float(o.nesterov), o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2, o.epsilon, o.weight_decay,
        )  # fmt: skip

    def state(self) -> dict[str, Array]:
        return {**{name: array.copy() for name, array in self.arrays.items()}, "step": np.array(self.step, np.int64)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Copy the arrays in. Raises ModelFileError if an array is missing or of another length."""
        check_state(state, self.arrays, len(self._roles))
        for name, array in self.arrays.items():
            array[:] = state[name]
        self.step = int(state["step"])
