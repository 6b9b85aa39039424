"""MNIST's digits as photos in folders, so that whatever learns from photos learns from them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import cv2

from core.data.digits import read_digits
from core.errors import DataError, StorageError

PARTS: Final = {"train": "train", "t10k": "test"}
"""The files' names and the folders', which are taken as the split."""


def unpack(source: Path, out: Path) -> int:
    """Write every digit as ``out/train/7/00042.png``; the number written. `out` must be new or empty.

    Raises DataError where the files are wrong or `out` holds something, StorageError where it cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out} is not an empty folder. Choose a new folder with --out.")
    count = 0
    for file, folder in PARTS.items():
        photos, labels = read_digits(source, file)
        for number, (photo, label) in enumerate(zip(photos, labels, strict=True)):
            _write(out / folder / str(label) / f"{number:05}.png", cv2.imencode(".png", photo)[1].tobytes())
        count += len(photos)
    return count


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(f"The digits could not be saved to {path.parent} ({error}).") from error
