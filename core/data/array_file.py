"""Arrays in files: named arrays with a checksum, and memory-mapped arrays that are read page by page."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from core.errors import StorageError
from core.ops.contract import Array
from core.storage import write_file

_MARK: Final = 32
"""Bytes of the SHA-256 at the start of the file, checked before it is parsed."""
RELEASE_BYTES: Final = 8 << 20
"""Bytes read between releases of mapped pages, which are resident memory: the system maps far more than is read."""


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Replace the file atomically. Raises StorageError."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    body = buffer.getvalue()
    write_file(path, sha256(body).digest() + body)


def read_arrays(path: Path) -> dict[str, Array] | None:
    """The arrays; None if the file is missing or damaged."""
    try:
        raw = path.read_bytes() if path.is_file() else b""  # reading a pipe would wait for ever
    except OSError:
        return None
    mark, body = raw[:_MARK], raw[_MARK:]
    if sha256(body).digest() != mark:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def complete_rows(path: Path, content: Array, compute: Callable[[Array], Array]) -> Array:
    """A value of each photo, by the SHA-256 of its file, uint8 ``(N, 32)``, as stored in a file.

    `compute` gets the indices of photos that the file lacks; their values are added to it. A file with other arrays
    counts as missing. Raises StorageError.
    """
    stored = read_arrays(path)
    if stored is None or "values" not in stored:
        stored = {"content": content[:0], "values": content[:0]}
    known = {key.tobytes(): value for key, value in zip(stored["content"], stored["values"], strict=True)}
    missing = np.array([row for row, key in enumerate(content) if key.tobytes() not in known], np.int64)
    if len(missing):
        known |= {content[row].tobytes(): value for row, value in zip(missing, compute(missing), strict=True)}
        keys = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), -1)
        write_arrays(path, {"content": keys, "values": np.stack(list(known.values()))})
    return np.stack([known[key.tobytes()] for key in content])


class MappedPages:
    """Checks the file of a mapped array before it is read, and releases its pages after every RELEASE_BYTES. Does
    nothing for arrays in memory."""

    def __init__(self, photos: Array) -> None:
        self._map: mmap.mmap | None = getattr(photos, "_mmap", None)
        self._name = Path(getattr(photos, "filename", "") or "")
        self._read = 0

    def check(self) -> None:
        """Raise StorageError if the file was truncated: the system ends a process that reads beyond its end. A file
        truncated after the check still does so."""
        if self._map is not None and self._map.size() < len(self._map):
            raise StorageError(f"{self._name} was truncated while it was in use. Start again, or resume the training: "
                               "the photos are decoded again.")

    def read(self, size: int) -> None:
        """Count `size` bytes as read."""
        self._read += size
        if self._map is not None and self._read >= RELEASE_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)  # a read-only mapping of a file: nothing is lost
            self._read = 0
