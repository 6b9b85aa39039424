"""Finds the near-duplicates of a decoded dataset and stores them with its cache."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from core.data.array_file import read_arrays, write_arrays
from core.data.cache import PhotoCache
from core.data.dataset import IsCancelled, ReportProgress
from core.data.near_duplicates import Pair, find_pairs, hash_photos

VERSION: Final = 1
"""Version of the search: stored results of another version are not used."""


def find_near_duplicates(
    cache: PhotoCache, progress: ReportProgress | None = None, cancelled: IsCancelled | None = None
) -> list[Pair]:
    """Pairs of near-duplicates, from the stored result if no photo has changed. Raises Cancelled, StorageError."""
    kept = cache.kept
    mark = sha256(f"{VERSION} {cache.side} ".encode() + cache.content[kept].tobytes()).digest()
    path = Path(cache.home) / f"{cache.side}.copies"
    pairs = _read(path, mark)
    if pairs is None:
        pairs = find_pairs(hash_photos(cache.photos, cache.slots[kept], progress, cancelled), cache.content[kept])
        rows = np.array([(pair.first, pair.second) for pair in pairs], np.int64).reshape(-1, 2)
        likeness = np.array([pair.likeness for pair in pairs], np.float64)
        write_arrays(path, {"mark": np.frombuffer(mark, np.uint8), "rows": rows, "likeness": likeness})
    return [Pair(int(kept[pair.first]), int(kept[pair.second]), pair.likeness) for pair in pairs]


def _read(path: Path, mark: bytes) -> list[Pair] | None:
    arrays = read_arrays(path)
    if arrays is None or arrays["mark"].tobytes() != mark:
        return None
    return [Pair(int(a), int(b), float(c)) for (a, b), c in zip(arrays["rows"], arrays["likeness"], strict=True)]
