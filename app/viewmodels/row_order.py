"""The columns of a table, and which rows are shown in which order. No Qt, so that a thread can compute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from core.ops.contract import Array

BATCH_ROWS: Final = 1024
"""Rows between two checks of whether the order was cancelled."""
KEY_BYTES: Final = 256
"""Bytes of a text that are compared: one long text must not widen the keys of all rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    title, help: of the header; text: of a row; sort: the number to sort by (the text if None); right: right-aligned;
    tip: tooltip of a row; searched: the text that a search looks into.
    """

    title: str
    text: Callable[[Any], str]
    sort: Callable[[Any], float] | None = None
    right: bool = False
    tip: Callable[[Any], str | None] | None = None
    searched: Callable[[Any], str] | None = None
    help: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """The column to sort by (-1: original order), the text that shown rows contain, and rows that are not shown."""

    column: int = -1
    descending: bool = False
    text: str = ""
    removed: frozenset[int] = frozenset()

    def covers(self, other: Query) -> bool:
        """Whether the order of this query has all rows of the other, in the same order."""
        return self == replace(other, text="", removed=self.removed) and self.removed <= other.removed


def arrange(
    rows: Sequence[Any], columns: Sequence[Column], query: Query, cancelled: Callable[[], bool] = lambda: False,
    ranking: Array | None = None,
) -> Array:  # fmt: skip
    """Positions of the rows to show, stably sorted; undefined once cancelled. ranking: of a query that covers this."""
    shown = _holding(rows, columns, query.text.casefold(), cancelled)
    shown[list(query.removed)] = False
    if ranking is not None:
        return ranking[shown[ranking]]
    chosen = np.flatnonzero(shown)
    if not 0 <= query.column < len(columns) or cancelled():
        return chosen
    keys = _keys([rows[at] for at in chosen.tolist()], columns[query.column], cancelled)
    if query.descending:  # reversed twice, so that the sort stays stable
        return chosen[::-1][np.argsort(keys[::-1], kind="stable")][::-1]
    return chosen[np.argsort(keys, kind="stable")]


def _holding(rows: Sequence[Any], columns: Sequence[Column], wanted: str, cancelled: Callable[[], bool]) -> Array:
    """Which rows contain a text, ignoring case, in one of the searched columns: bool ``(len(rows),)``."""
    found = np.full(len(rows), not wanted)
    searched = [column.searched for column in columns if column.searched]
    for first in range(0, len(rows) if wanted else 0, BATCH_ROWS):
        if cancelled():
            break
        part = rows[first : first + BATCH_ROWS]
        hits = [False] * len(part)
        for text in searched:
            hits = [hit or wanted in text(row).casefold() for hit, row in zip(hits, part, strict=True)]
        found[first : first + BATCH_ROWS] = hits
    return found


def _keys(rows: Sequence[Any], column: Column, cancelled: Callable[[], bool]) -> Array:
    """The sort keys: numbers, or texts as UTF-8, whose bytes sort like their letters.

    Arrays, because sorting them releases the GIL and sorting a list does not.
    """

    def key(row: Any) -> Any:
        return column.sort(row) if column.sort else column.text(row).casefold().encode("utf-8", "surrogateescape")

    found: list[Any] = []
    for first in range(0, len(rows), BATCH_ROWS):
        part = rows[first : first + BATCH_ROWS]
        found += [key(row) for row in part] if not cancelled() else [0.0 if column.sort else b""] * len(part)
    if column.sort is not None:
        return np.array(found, np.float64)
    return np.array(found, f"S{min(max(map(len, found), default=1), KEY_BYTES) or 1}")
