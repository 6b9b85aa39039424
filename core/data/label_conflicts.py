"""One picture under two labels: whatever the network answers there, one of them is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.data.cache import PhotoCache
from core.data.dataset import Dataset
from core.data.near_duplicates import Pair, equal_files
from core.data.string_array import readable

SHOWN: Final = 3
"""Pairs that a sentence names; the window's Health lists them all."""


def find_conflicts(dataset: Dataset, cache: PhotoCache, copies: Sequence[Pair] | None) -> list[Pair]:
    """Those of the pairs of one picture whose labels differ; of equal files, where near-copies were not looked for."""
    if copies is None:
        copies = equal_files(np.where(cache.slots[:, None] >= 0, cache.content, 0))
    return [pair for pair in copies if dataset.labels[pair.first] != dataset.labels[pair.second]]


def describe_conflicts(dataset: Dataset, conflicts: Sequence[Pair]) -> str:
    """How many there are and the first of them, as a sentence; empty where there are none."""
    if not conflicts:
        return ""
    named = [" = ".join(f"{readable(dataset.paths[row])} ({dataset.label(row)})" for row in (pair.first, pair.second))
             for pair in conflicts[:SHOWN]]  # fmt: skip
    pairs = "; ".join(named + (["…"] if len(conflicts) > SHOWN else []))
    return f"Pictures under two labels: {len(conflicts)} ({pairs}). Set the labels right, or remove them."
