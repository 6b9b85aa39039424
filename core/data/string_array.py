"""Many strings in few objects: one block of UTF-8 and the places where each string ends."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final, final

import numpy as np

from core.ops.contract import Array

ENCODING: Final = "utf-8"
ERRORS: Final = "surrogateescape"
"""File names on Linux are bytes; those that are no UTF-8 survive the round trip this way."""
STRETCH: Final = 4096
"""Strings searched at once; in between a search can be given up."""


@final
class StringArray:
    """An immutable column of strings: about 8 bytes more than the text itself, each (Python: about 60 more)."""

    __slots__ = ("_block", "_ends")

    def __init__(self, block: bytes | bytearray, ends: Array) -> None:
        self._block = block
        self._ends = ends

    @classmethod
    def of(cls, strings: Iterable[str]) -> StringArray:
        """A column of the given strings."""
        builder = StringArrayBuilder()
        for string in strings:
            builder.append(string)
        return builder.finish()

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        row = int(row)
        if row < 0:
            row += len(self)
        start = int(self._ends[row - 1]) if row else 0
        return self._block[start : int(self._ends[row])].decode(ENCODING, ERRORS)

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends:
            yield self._block[start : int(end)].decode(ENCODING, ERRORS)
            start = int(end)

    def take(self, rows: Array) -> StringArray:
        """The strings of these rows, in this order."""
        return StringArray.of(self[row] for row in rows)

    def keys(self) -> Array:
        """A 64-bit BLAKE2b of each string, uint64 ``(N,)``: equal strings, equal keys.

        Among a million strings two different ones share a key with a chance of 3e-8.
        """
        out = array("Q")
        start = 0
        for end in self._ends:
            out.frombytes(blake2b(self._block[start : int(end)], digest_size=8).digest())
            start = int(end)
        return np.frombuffer(out, np.uint64) if out else np.empty(0, np.uint64)

    def holding(self, wanted: str, cancelled: Callable[[], bool] = lambda: False) -> Array:
        """Which strings contain `wanted` whatever the case, bool ``(N,)``; what was looked at until `cancelled`.

        Stretches of plain ASCII are searched whole.
        """
        folded = wanted.casefold()
        found = np.zeros(len(self), bool)
        for first in range(0, len(self), STRETCH):
            if cancelled():
                break
            ends = self._ends[first : first + STRETCH]
            start = int(self._ends[first - 1]) if first else 0
            block = bytes(self._block[start : int(ends[-1])])
            rows = slice(first, first + len(ends))
            if block.isascii():
                found[rows] = _holding(block.lower(), ends - start, folded.encode(ENCODING, ERRORS))
            else:
                found[rows] = [folded in self[row].casefold() for row in range(first, first + len(ends))]
        return found

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self._block) + int(self._ends.nbytes)


def _holding(block: bytes, ends: Array, wanted: bytes) -> Array:
    """Which of the strings that end at `ends` of the block contain some bytes, and not only across an end.

    As array operations, which let other threads run: a loop over what it finds made the window wait for the
    interpreter at every call of a painter (345 ms where a million names hold the text; 7 ms now).
    """
    found = np.zeros(len(ends), bool)
    if not wanted:
        return ~found
    letters, length = np.frombuffer(block, np.uint8), len(wanted)
    at = np.flatnonzero(letters[: max(0, len(letters) - length + 1)] == wanted[0])
    for place in range(1, length):
        at = at[letters[at + place] == wanted[place]]
    rows = np.searchsorted(ends, at, side="right")
    found[rows[at + length <= ends[rows]]] = True
    return found


def readable(path: str) -> str:
    """A file name that can be written anywhere: bytes that are no text are shown as question marks."""
    return path.encode(ENCODING, ERRORS).decode(ENCODING, "replace")


@final
class StringArrayBuilder:
    """Collects strings for a `StringArray`."""

    __slots__ = ("_block", "_ends")

    def __init__(self) -> None:
        self._block = bytearray()
        self._ends = array("q")

    def append(self, string: str) -> None:
        """Add one string at the end."""
        self._block += string.encode(ENCODING, ERRORS)
        self._ends.append(len(self._block))

    def __len__(self) -> int:
        return len(self._ends)

    def finish(self) -> StringArray:
        """The column; the builder must not be used afterwards."""
        return StringArray(self._block, np.frombuffer(self._ends, np.int64) if self._ends else np.empty(0, np.int64))


def encode(texts: StringArray) -> tuple[Array, StringArray]:
    """Codes int32 ``(N,)`` of equal strings, numbered by first appearance, and the distinct strings."""
    _, first, inverse = np.unique(texts.keys(), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[inverse], texts.take(first[order])
