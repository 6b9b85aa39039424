"""Weights as stored in a model file: float32, or filters and dense weights in half precision or 8 bits.

8-bit filters are integers -127..127 times a float32 step (symmetric, one per output channel); small filters stay in
half precision, biases and batch norms in float32. Weights are read as float32, exactly as rounded before writing.
Source: Krishnamoorthi, "Quantizing deep convolutional networks", 2018, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from core.errors import ModelFileError
from core.ops.contract import Array, Arrays

STEPS: Final = "steps/"
"""Prefix of the steps' names in a file: ``steps/features.0.0.weight``, float32 ``(filters,)``."""
LARGEST: Final = 127
FEWEST: Final = 16
"""Smallest filter stored in 8 bits. The nine weights of a depthwise filter take 13 bytes with their step, 18 in half
precision, and lose most: MobileNetV2's probabilities diverge (KL) by 0.000066 with them in 8 bits, by 0.000015 with
them in half precision (326 validation photos)."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Weights by name; half: filters and dense weights without steps are float16 values; steps: of 8-bit weights."""

    weights: Arrays
    half: bool = False
    steps: Mapping[str, Array] = field(default_factory=dict)


def round_to_half(weights: Arrays) -> Stored:
    """Round filters and dense weights to half precision. Raises ModelFileError if one is too large."""
    with np.errstate(over="ignore"):
        rounded = {name: _widen(_narrow(array)) for name, array in weights.items()}
    for name, array in rounded.items():
        if not np.isfinite(array).all():
            raise ModelFileError(f"{name} holds a weight beyond 65504, which half precision cannot. "
                                 "Store the model in full precision.")
    return Stored(rounded, half=any(array.ndim > 1 for array in weights.values()))


def round_to_eight_bits(weights: Arrays) -> Stored:
    """Round filters and dense weights to multiples of a step per output channel: its largest weight over 127.

    Least-squares steps gain nothing: KL 0.000057 instead of 0.000066, with depthwise filters in 8 bits. Raises
    ModelFileError if a weight is too large for half precision.
    """
    wide = {name: array for name, array in weights.items() if array.ndim > 1 and array[0].size >= FEWEST}
    largest = {name: np.abs(array).max(axis=tuple(range(1, array.ndim))) for name, array in wide.items()}
    steps = {name: np.where(top > 0, top / LARGEST, 1.0).astype(np.float32) for name, top in largest.items()}
    rest = round_to_half({name: array for name, array in weights.items() if name not in wide})
    rounded = {name: _multiply(_count_steps(array, steps[name]), steps[name]) for name, array in wide.items()}
    return Stored({name: {**rest.weights, **rounded}[name] for name in weights}, rest.half, steps)


def to_tensors(stored: Stored) -> dict[str, Array]:
    tensors = {}
    for name, array in stored.weights.items():
        if name in stored.steps:
            tensors[name] = _count_steps(array, stored.steps[name])
        else:
            tensors[name] = _narrow(array) if stored.half else array
    return tensors | {STEPS + name: steps for name, steps in stored.steps.items()}


def from_tensors(tensors: Arrays) -> Stored:
    """The weights in a file's arrays. Raises ModelFileError if 8-bit weights have no valid steps."""
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
