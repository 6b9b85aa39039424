"""A few named arrays in one file that is whole and unharmed, or counts as missing."""

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
"""Bytes of the SHA-256 that the file starts with: a harmed file is known as such before it is read."""


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Replace the file, whole or not at all. Raises StorageError."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **dict(arrays))
    body = buffer.getvalue()
    write_file(path, sha256(body).digest() + body)


def read_arrays(path: Path) -> dict[str, Array] | None:
    """The arrays, or None where there is no such file or it is not as it was written."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    mark, body = raw[:_MARK], raw[_MARK:]
    if sha256(body).digest() != mark:
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
