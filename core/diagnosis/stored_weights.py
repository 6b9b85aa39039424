"""How weights lie in a model file: in float32, or filters and dense weights in half precision or in eight bits.

In eight bits a filter is whole numbers -127..127 times its step, a float32 of its own (symmetric, per output channel);
filters of few weights stay in half precision. Biases and batch norms, which are few and of any size, stay in float32.
What is read is float32 again, the very numbers that were written. Source: Krishnamoorthi, "Quantizing deep
convolutional networks", 2018, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array, Arrays

STEPS: Final = "steps/"
"""Prefix of the steps' names in a file: ``steps/features.0.0.weight``, float32 ``(filters,)``."""
LARGEST: Final = 127
FEWEST: Final = 16
"""Weights of a filter from which on it lies in eight bits. The nine of a depthwise filter are 13 bytes with their step,
18 in half precision, and cost most: MobileNetV2's probabilities diverge (KL) by 0.000066 with them in eight bits, by
0.000015 with them in half precision (326 validation photos)."""


@final
@dataclass(frozen=True, slots=True)
class Stored:
    """Weights, float32 by full name, and how they lie in the file.

    half: filters and dense weights without steps are numbers of float16. steps: of those in eight bits, by full name.
    """

    weights: Arrays
    half: bool = False
    steps: Mapping[str, Array] = field(default_factory=dict)


def round_to_half(weights: Arrays) -> Stored:
    """Filters and dense weights as half precision holds them. Raises ModelFileError where one is too large for it."""
    with np.errstate(over="ignore"):
        rounded = {name: _widen(_narrow(array)) for name, array in weights.items()}
    for name, array in rounded.items():
        if not np.isfinite(array).all():
            raise ModelFileError(f"{name} holds a weight beyond 65504, which half precision cannot. "
                                 "Store the model in full precision.")
    return Stored(rounded, half=any(array.ndim > 1 for array in weights.values()))


def round_to_eight_bits(weights: Arrays) -> Stored:
    """Filters and dense weights as whole multiples of a step for each output channel: its largest weight over 127.

    Steps of least squares gain nothing: KL 0.000057 instead of 0.000066, those of nine weights included. Raises
    ModelFileError where a weight that stays in half precision is too large for it.
    """
    wide = {name: array for name, array in weights.items() if array.ndim > 1 and array[0].size >= FEWEST}
    steps = {name: _choose_steps(array) for name, array in wide.items()}
    rest = round_to_half({name: array for name, array in weights.items() if name not in wide})
    rounded = {name: _multiply(_count_steps(array, steps[name]), steps[name]) for name, array in wide.items()}
    return Stored({name: {**rest.weights, **rounded}[name] for name in weights}, rest.half, steps)


def to_tensors(stored: Stored) -> dict[str, Array]:
    """The arrays of the file."""
    tensors = {}
    for name, array in stored.weights.items():
        if name in stored.steps:
            tensors[name] = _count_steps(array, stored.steps[name])
        else:
            tensors[name] = _narrow(array) if stored.half else array
    return tensors | {STEPS + name: steps for name, steps in stored.steps.items()}


def from_tensors(tensors: Arrays) -> Stored:
    """The weights of a file's arrays. Raises ModelFileError where whole numbers have no sensible steps."""
    arrays = {name: array for name, array in tensors.items() if not name.startswith(STEPS)}
    steps = {name.removeprefix(STEPS): array for name, array in tensors.items() if name.startswith(STEPS)}
    weights, half = {}, False
    for name, array in arrays.items():
        if array.dtype == np.int8:
            weights[name] = _multiply(array, _checked_steps(name, array, steps))
        else:
            half |= array.dtype == np.float16
            weights[name] = _widen(array)
    without = [name for name in steps if name not in arrays or arrays[name].dtype != np.int8]
    if without:
        raise ModelFileError(f"The file has 8-bit scales for {', '.join(without[:5])}, but no such weights.")
    return Stored(weights, half, steps)


def _checked_steps(name: str, array: Array, steps: Arrays) -> Array:
    found = steps.get(name)
    if found is None:
        raise ModelFileError(f"{name} is stored in 8 bits, but its scales are missing.")
    wanted = array.shape[:1]
    if array.ndim < 2 or found.shape != wanted or found.dtype != np.float32:
        raise ModelFileError(f"{name} is int8 {array.shape} with steps {found.dtype} {found.shape}; filters "
                             "and dense weights need one float32 for each output channel.")
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise ModelFileError(f"The 8-bit scales of {name} are not all positive numbers.")
    return found


def _choose_steps(array: Array) -> Array:
    top = np.abs(array).max(axis=tuple(range(1, array.ndim)))
    return np.where(top > 0, top / LARGEST, 1.0).astype(np.float32)


def _count_steps(array: Array, steps: Array) -> Array:
    return np.rint(array / _column(steps, array.ndim)).astype(np.int8)


def _multiply(counts: Array, steps: Array) -> Array:
    with np.errstate(over="ignore"):  # of a crafted file; what is not finite is refused with the other weights
        return counts.astype(np.float32) * _column(steps, counts.ndim)


def _column(steps: Array, axes: int) -> Array:
    return steps.reshape(-1, *(1,) * (axes - 1))


def _narrow(array: Array) -> Array:
    return array.astype(np.float16) if array.ndim > 1 else array


def _widen(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == np.float16 else array
