"""Releases the pages of a memory-mapped file while it is read, so that resident memory stays small."""

from __future__ import annotations

import mmap
from typing import Final, final

import numpy as np

from core.ops.contract import Array

RELEASE_BYTES: Final = 8 << 20
"""Mapped pages count as resident memory until released. The system maps far more than is read,
so pages are released often."""


@final
class PageReleaser:
    """Releases the pages of a mapped array after every RELEASE_BYTES read. Does nothing for arrays in memory."""

    def __init__(self, photos: Array) -> None:
        mapped = getattr(photos, "_mmap", None) if isinstance(photos, np.memmap) else None
        self._map: mmap.mmap | None = mapped if hasattr(mmap, "MADV_DONTNEED") else None
        self._read = 0

    def read(self, size: int) -> None:
        """Count `size` bytes as read."""
        self._read += size
        if self._map is not None and self._read >= RELEASE_BYTES:
            self._map.madvise(mmap.MADV_DONTNEED)  # a read-only mapping of a file: nothing is lost
            self._read = 0
