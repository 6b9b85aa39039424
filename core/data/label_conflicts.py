"""Finds near-duplicates with different labels: one of the labels must be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.data.cache import PhotoCache
from core.data.dataset import Dataset
from core.data.near_duplicates import Pair, equal_files
from core.data.string_array import readable

SHOWN: Final = 3
"""Largest number of pairs named in a sentence."""


def find_conflicts(dataset: Dataset, cache: PhotoCache, copies: Sequence[Pair] | None) -> list[Pair]:
    """The near-duplicates (or, if not searched for, identical files) whose labels differ."""
    if copies is None:
        copies = equal_files(np.where(cache.slots[:, None] >= 0, cache.content, 0))
    return [pair for pair in copies if dataset.labels[pair.first] != dataset.labels[pair.second]]


def describe_conflicts(dataset: Dataset, conflicts: Sequence[Pair]) -> str:
    """A sentence with the number of conflicts and the first of them; empty if there are none."""
    if not conflicts:
        return ""
    named = [" = ".join(f"{readable(dataset.paths[row])} ({dataset.label(row)})" for row in (pair.first, pair.second))
             for pair in conflicts[:SHOWN]]  # fmt: skip
    pairs = "; ".join(named + (["…"] if len(conflicts) > SHOWN else []))
    return f"Pictures with two labels: {len(conflicts)} ({pairs}). Correct the labels, or remove these photos."
