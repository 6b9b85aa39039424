"""Digits for the kernels course: MNIST's IDX files, plain or gzip, and generated digits in the same form.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database", section "File formats". A crafted file takes no more
memory than its header states and `MOST_BYTES` allows.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Final

import cv2
import numpy as np

from core.errors import DataError
from core.ops.contract import Array

MAGIC: Final = b"\0\0\x08"
"""Of unsigned bytes; IDX has other numbers too, but MNIST does not."""
MOST_AXES: Final = 4
MOST_BYTES: Final = 1 << 28
"""256 MB; all of MNIST is 47 MB."""
SIDE: Final = 28
CLASSES: Final = tuple(str(digit) for digit in range(10))
CANVAS: Final = 2 * SIDE
"""Digits are drawn at twice their size and then reduced, pixels."""
HEIGHT: Final = 20 / 28
"""Mean height of a digit in its image; MNIST's are 20 of 28 pixels."""
FONTS: Final = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX,
                cv2.FONT_HERSHEY_SCRIPT_SIMPLEX)  # fmt: skip
COUNTS: Final = {"train": 8192, "t10k": 2000}
"""Number of digits in the training and in the test part."""


def read_idx(path: Path) -> Array:
    """The uint8 array of an IDX file. Raises DataError."""
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
    if len(magic) < 4 or magic[:3] != MAGIC:
        raise DataError(f"{path.name} is not an IDX file of bytes: it does not begin with the magic number.")
    axes = magic[3]
    if not 1 <= axes <= MOST_AXES:
        raise DataError(f"{path.name} promises {axes} axes; 1 to {MOST_AXES} are possible.")
    head = file.read(4 * axes)
    if len(head) < 4 * axes:
        raise DataError(f"{path.name} ends within its header.")
    shape = struct.unpack(f">{axes}I", head)
    promised = math.prod(max(side, 1) for side in shape)  # NumPy knows no axis of 2**32 even beside one of 0
    if promised > MOST_BYTES:
        raise DataError(f"{path.name} promises {promised} bytes; more than {MOST_BYTES} are not read.")
    size = math.prod(shape)
    data = file.read(size)
    if len(data) < size:
        raise DataError(f"{path.name} is cut: {len(data)} of {size} bytes are there.")
    if file.read(1):
        raise DataError(f"{path.name} is longer than its header states.")
    return np.frombuffer(data, np.uint8).reshape(shape)


def read_digits(folder: Path, part: str) -> tuple[Array, Array]:
    """MNIST's "train" or "t10k": photos uint8 ``(N, 28, 28, 1)`` and labels int32 ``(N,)``. Raises DataError."""
    photos = read_idx(_find(folder, f"{part}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{part}-labels-idx1-ubyte"))
    if photos.shape[1:] != (SIDE, SIDE):
        raise DataError(f"The {part} photos in {folder} are not digits of {SIDE} x {SIDE} bytes.")
    if labels.shape != photos.shape[:1] or labels.max(initial=0) > 9:
        raise DataError(f"The {part} labels in {folder} do not fit its photos.")
    return photos[..., None], labels.astype(np.int32)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.exists():
            return candidate
    raise DataError(f"There is no {name} or {name}.gz in {folder}. Put MNIST's four files there.")


def generate_digits(part: str) -> tuple[Array, Array]:
    """Return images uint8 ``(N, 28, 28, 1)`` and labels int32 ``(N,)`` of "train" or "t10k", always the same ones."""
    rng = np.random.default_rng([list(COUNTS).index(part), COUNTS[part]])
    labels = rng.integers(0, 10, COUNTS[part], np.int32)
    return np.stack([_draw(int(label), rng) for label in labels])[..., None], labels


def _draw(digit: int, rng: np.random.Generator) -> Array:
    """One digit, white on black, with a random font, pen, size, rotation, slant and position."""
    font, text, thickness = FONTS[int(rng.integers(len(FONTS)))], str(digit), int(rng.integers(3, 8))
    (width, height), _ = cv2.getTextSize(text, font, 1.0, 1)
    size = CANVAS * HEIGHT * rng.uniform(0.8, 1.1) / max(width, height)
    image = np.zeros((CANVAS, CANVAS), np.uint8)
    corner = (int((CANVAS - width * size) / 2), int((CANVAS + height * size) / 2))
    cv2.putText(image, text, corner, font, size, 255, thickness, cv2.LINE_AA)
    change = cv2.getRotationMatrix2D((CANVAS / 2, CANVAS / 2), float(rng.uniform(-15, 15)), 1.0)
    change[0, 1] += rng.uniform(-0.25, 0.25)  # slant
    change[:, 2] += rng.uniform(-0.08, 0.08, 2) * CANVAS
    change[0, 2] -= change[0, 1] * CANVAS / 2 + change[0, 0] * CANVAS / 2 - CANVAS / 2  # the slant keeps the centre
    moved = cv2.warpAffine(image, change, (CANVAS, CANVAS))
    small = cv2.resize(moved, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    return np.asarray(np.clip(small + rng.normal(0, 8, small.shape), 0, 255), np.uint8)
