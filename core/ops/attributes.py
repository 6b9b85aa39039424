"""Reads node attributes, which may come from a file. Raises ValueError with a sentence unless type and range are right.

Bounds are inclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.graph import Attributes, Shape


def read_int(attributes: Attributes, name: str, low: int) -> int:
    value, high = attributes[name], 1 << 30
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}.")
    return value


def read_ints(attributes: Attributes, name: str, count: int, low: int) -> tuple[int, ...]:
    value, high = attributes[name], 1 << 15
    sound = isinstance(value, tuple) and len(value) == count
    if not sound or not all(type(v) is int and low <= v <= high for v in value):  # type: ignore[union-attr]
        raise ValueError(f"{name} must be {count} whole numbers from {low} to {high}, not {value!r}.")
    return value  # type: ignore[return-value]


def read_bool(attributes: Attributes, name: str) -> bool:
    value = attributes[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}.")
    return value


def read_number(attributes: Attributes, name: str, low: float, high: float) -> float:
    value = attributes[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}.")
    return float(value)


def read_numbers(attributes: Attributes, name: str) -> tuple[float, ...]:
    value = attributes[name]
    if not isinstance(value, tuple) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in value
    ):
        raise ValueError(f"{name} must be a list of numbers, not {value!r}.")
    return tuple(float(v) for v in value)


def read_text(attributes: Attributes, name: str) -> str:
    value = attributes[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {value!r}.")
    return value


def only_input(inputs: Sequence[Shape]) -> Shape:
    """Return the shape of a node's only input, which must not be a label."""
    if len(inputs) != 1 or not inputs[0]:
        raise ValueError("takes exactly one input, the output of another node.")
    return inputs[0]


def only_image(inputs: Sequence[Shape]) -> tuple[int, int, int]:
    """Return (height, width, channels) of a node's only input."""
    shape = only_input(inputs)
    if len(shape) != 3:
        raise ValueError(f"needs an input of (height, width, channels), not {shape}.")
    return shape[0], shape[1], shape[2]
