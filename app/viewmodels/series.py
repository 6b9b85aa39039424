"""Numbers that arrive one by one and are drawn as arrays. No Qt."""

from __future__ import annotations

from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@final
class Series:
    """Rows of floats in an array that doubles when full: appending takes constant time, reading copies nothing."""

    def __init__(self, columns: int) -> None:
        self._rows: Floats = np.empty((256, columns))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, *values: float) -> None:
        if self._length == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._length] = values
        self._length += 1

    def column(self, index: int) -> Floats:
        """A view of one column, ``(len,)``."""
        return self._rows[: self._length, index]

    def last(self, index: int) -> float:
        return float(self._rows[self._length - 1, index]) if self._length else float("nan")

    def cut(self, index: int, above: float) -> None:
        """Remove the rows whose column `index` (ascending) is above a value."""
        self._length = int(np.searchsorted(self.column(index), above, side="right"))
