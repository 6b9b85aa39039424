"""Stores named arrays in one file with a checksum; an incomplete or damaged file counts as missing."""

from __future__ import annotations

import io
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from core.ops.contract import Array
from core.storage import write_file

_MARK: Final = 32
"""Bytes of the SHA-256 at the start of the file, checked before it is parsed."""


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Replace the file atomically. Raises StorageError."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    body = buffer.getvalue()
    write_file(path, sha256(body).digest() + body)


def read_arrays(path: Path) -> dict[str, Array] | None:
    """The arrays; None if the file is missing or damaged."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    mark, body = raw[:_MARK], raw[_MARK:]
    if sha256(body).digest() != mark:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
