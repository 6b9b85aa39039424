"""Compact arrays of strings: one block of UTF-8 and the end of each string."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final
from unicodedata import normalize

import numpy as np

from core.ops.contract import Array

ENCODING: Final = "utf-8"
ERRORS: Final = "surrogateescape"
"""File names on Linux are bytes; names that are not UTF-8 survive a round trip this way."""
STRETCH: Final = 4096
"""Strings searched between two checks for cancellation."""


class StringArray:
    """An immutable array of strings, with 8 bytes of overhead per string (a Python string has about 60)."""

    __slots__ = ("_block", "_ends")

    def __init__(self, block: bytes, ends: Array) -> None:
        self._block = block
        self._ends = ends

    @classmethod
    def of(cls, strings: Iterable[str]) -> StringArray:
        parts = [string.encode(ENCODING, ERRORS) for string in strings]
        return cls(b"".join(parts), np.cumsum([len(part) for part in parts], dtype=np.int64))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        if row < 0:
            row += len(self)
        start = int(self._ends[row - 1]) if row else 0
        return self._block[start : int(self._ends[row])].decode(ENCODING, ERRORS)

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in map(int, self._ends):
            yield self._block[start:end].decode(ENCODING, ERRORS)
            start = end

    def take(self, rows: Array) -> StringArray:
        """The strings at these indices, in this order."""
        return StringArray.of(self[row] for row in rows)

    def holding(self, wanted: str, cancelled: Callable[[], bool] = lambda: False) -> Array:
        """Which strings contain `wanted`, in any case and form of accents, bool ``(N,)``; False after `cancelled`."""
        folded = normalize("NFC", wanted.casefold())
        found = np.zeros(len(self), bool)
        for first in range(0, len(self), STRETCH):
            if cancelled():
                break
            ends = self._ends[first : first + STRETCH]
            start = int(self._ends[first - 1]) if first else 0
            block = self._block[start : int(ends[-1])]
            rows = slice(first, first + len(ends))
            if block.isascii():
                found[rows] = _holding(block.lower(), ends - start, folded.encode(ENCODING, ERRORS))
            else:
                found[rows] = [folded in normalize("NFC", self[row].casefold()) for row in range(first, rows.stop)]
        return found


def _holding(block: bytes, ends: Array, wanted: bytes) -> Array:
    """Which of the strings that end at `ends` contain the bytes `wanted`; a match must not cross an end.

    NumPy operations release the interpreter lock, so that the window stays responsive during a search.
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
    """A file name as printable text: bytes that are not UTF-8 become question marks."""
    return path.encode(ENCODING, ERRORS).decode(ENCODING, "replace")


def encode(texts: Iterable[str]) -> tuple[Array, list[str]]:
    """Codes int32 ``(N,)`` of equal strings, numbered by first appearance, and the distinct strings."""
    codes: dict[str, int] = {}
    return np.fromiter((codes.setdefault(text, len(codes)) for text in texts), np.int32), list(codes)


def number_values(values: Array) -> Array:
    """Number equal values by first appearance: int32 ``(N,)``."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int32)[inverse]
