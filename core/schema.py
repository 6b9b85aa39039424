"""Schemas of data from files: a reader takes a value and returns it checked, or raises SchemaError.

    HEADER = record({"classes": listing(text), "temperature": number}, {"views": whole})
    header = HEADER(parse_json(text))
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

DEEPEST: Final = 64
"""Most nested lists and objects; our files have fewer than ten."""
LARGEST: Final = 1 << 63
MOST: Final = 1_000_000
"""Most entries of a list or an object."""

Reader: TypeAlias = Callable[[Any], Any]


class SchemaError(ValueError):
    """A sentence part that says what is wrong in a file, without the file's name."""


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON text. Raises SchemaError if it is invalid, too deep, or has integers beyond 64 bits."""
    try:
        value = json.loads(text, parse_int=_parse_whole)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"it is not JSON: {error}") from error
    level: list[Any] = [[value]]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(inner, dict | list)]  # fmt: skip
    if level:
        raise SchemaError("it is nested too deeply")
    return value


def _parse_whole(digits: str) -> int:
    if len(digits) > 20 or not -LARGEST <= int(digits) < LARGEST:
        raise SchemaError(f"the number {digits[:20]}... is too large")
    return int(digits)


def anything(value: Any) -> Any:
    """Accept any value, which the caller checks."""
    return value


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{_shown(value)} is no text")
    try:
        value.encode("utf-8", "surrogateescape")  # as file names are kept that are no UTF-8
    except UnicodeEncodeError as error:
        raise SchemaError(f"{_shown(value)} is no text that can be written") from error
    return value


def number(value: Any) -> float:
    """Read a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SchemaError(f"{_shown(value)} is no number")
    return float(value)


def divisor(value: Any) -> float:
    """Read a number by which values are divided, 1e-6 to 1e6: float32 over it is finite in float64."""
    if not 1e-6 <= number(value) <= 1e6:
        raise SchemaError(f"{_shown(value)} is not a number from 1e-6 to 1e6")
    return float(value)


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SchemaError(f"{_shown(value)} is no whole number")
    return value


def count(value: Any) -> int:
    """Read a whole number of at least 0."""
    if whole(value) < 0:
        raise SchemaError(f"{value} is below 0")
    return int(value)


def mapping(value: Any) -> dict[str, Any]:
    """Read a JSON object of any content."""
    if not isinstance(value, dict) or len(value) > MOST:
        raise SchemaError(f"{_shown(value)} is no JSON object")
    return value


def listing(reader: Reader) -> Reader:
    """Return a reader of a list of values of one kind, as a tuple."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MOST:
            raise SchemaError(f"{_shown(value)} is no list")
        return tuple(reader(entry) for entry in value)

    return read


def named(reader: Reader) -> Reader:
    """Return a reader of an object whose values are all of one kind."""
    return lambda value: {name: _at(name, reader, entry) for name, entry in mapping(value).items()}


def record(required: Mapping[str, Reader], optional: Mapping[str, Reader] | None = None) -> Reader:
    """Return a reader of an object with these fields; others are ignored. Fields of `optional` may be missing."""

    def read(value: Any) -> dict[str, Any]:
        found = mapping(value)
        missing = [name for name in required if name not in found]
        if missing:
            raise SchemaError(f"{missing[0]} is missing")
        readers = {**required, **(optional or {})}
        return {name: _at(name, reader, found[name]) for name, reader in readers.items() if name in found}

    return read


def _at(name: str, reader: Reader, value: Any) -> Any:
    try:
        return reader(value)
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from error


def _shown(value: Any) -> str:
    return ascii(value)[:60]
