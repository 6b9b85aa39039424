"""Reads IDX files, the format of MNIST: a small header, then numbers. Plain or gzip.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database", section "File formats". A crafted file
costs no more memory than its header honestly promises and `MOST_BYTES` allows.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Final

import numpy as np

from core.errors import DataError
from core.ops.contract import Array

KINDS: Final = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MOST_AXES: Final = 4
MOST_BYTES: Final = 1 << 28
"""256 MB; all of MNIST is 47 MB."""

SIDE: Final = 28
CLASSES: Final = tuple(str(digit) for digit in range(10))


def read_idx(path: Path) -> Array:
    """The array of an IDX file, in the machine's byte order. Raises DataError with a sentence."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if packed:
                with gzip.open(file) as unpacked:
                    return _read(unpacked, path)
            return _read(file, path)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name} cannot be read: {error}.") from error


def _read(file: IO[bytes] | gzip.GzipFile, path: Path) -> Array:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in KINDS:
        raise DataError(f"{path.name} is not an IDX file: it does not begin with the magic number.")
    axes = magic[3]
    if not 1 <= axes <= MOST_AXES:
        raise DataError(f"{path.name} promises {axes} axes; 1 to {MOST_AXES} are possible.")
    head = file.read(4 * axes)
    if len(head) < 4 * axes:
        raise DataError(f"{path.name} ends within its header.")
    shape = struct.unpack(f">{axes}I", head)
    kind = np.dtype(KINDS[magic[2]])
    size = kind.itemsize
    promised = size * math.prod(max(side, 1) for side in shape)  # NumPy knows no axis of 2**32 even beside one of 0
    if promised > MOST_BYTES:
        raise DataError(f"{path.name} promises {promised} bytes; more than {MOST_BYTES} are not read.")
    size *= math.prod(shape)
    data = file.read(size)
    if len(data) < size:
        raise DataError(f"{path.name} is cut: {len(data)} of {size} bytes are there.")
    if file.read(1):
        raise DataError(f"{path.name} is longer than its header states.")
    return np.frombuffer(data, kind).reshape(shape).astype(kind.newbyteorder("="))


def read_digits(folder: Path, part: str) -> tuple[Array, Array]:
    """MNIST's "train" or "t10k": photos uint8 ``(N, 28, 28, 1)`` and labels int32 ``(N,)``. Raises DataError."""
    photos = read_idx(_find(folder, f"{part}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"))
    if photos.dtype != np.uint8 or photos.shape[1:] != (SIDE, SIDE):
        raise DataError(f"The {part} photos in {folder} are not digits of {SIDE} x {SIDE} bytes.")
    if labels.shape != photos.shape[:1] or (len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) <= 9):
        raise DataError(f"The {part} labels in {folder} do not fit its photos.")
    return photos[..., None], labels.astype(np.int32)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.exists():
            return candidate
    raise DataError(f"There is no {name} or {name}.gz in {folder}. Put MNIST's four files there.")
