"""The user's own field photos: a second test set, used neither for training nor for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from core.data.cache import PhotoCache, open_cache
from core.data.dataset import Dataset, IsCancelled, ReportProgress, describe_skipped, reasons
from core.data.source import open_photos
from core.errors import DataError
from core.ops.contract import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class FieldPhotos:
    """Decoded field photos.

    slots: int64 ``(N,)``, the usable photos in `cache.photos`; labels: int32 ``(N,)``, class indices of the network;
    warnings: sentences for the user.
    """

    cache: PhotoCache
    slots: Array
    labels: Array
    warnings: tuple[str, ...] = ()


def scan_field(source: str, label: str = "") -> Dataset:
    """List the photos of a folder or manifest (`label` is the manifest's class column).

    Raises DataError.
    """
    try:
        return open_photos(source, "" if Path(source).expanduser().is_dir() else label)
    except DataError as error:
        raise DataError(f"Field photos (--field): {error}") from error


def check_field(dataset: Dataset, classes: Sequence[str]) -> None:
    """Raise DataError if the field photos have a class that the network does not have."""
    unknown = [name for name in dataset.classes if name not in classes]
    if unknown:
        raise DataError(
            f"The field photos have the class {', '.join(unknown)}, which is not a class of this training. Use these "
            f"class names: {', '.join(classes)}."
        )


def open_field(
    dataset: Dataset,
    classes: Sequence[str],
    side: int,
    *,
    folder: str = "",
    threads: int = 0,
    progress: ReportProgress | None = None,
    cancelled: IsCancelled | None = None,
) -> FieldPhotos:
    """Decode the photos of `scan_field` to squares of `side` pixels, with classes matched by name.

    Raises DataError (also for a class that the network does not have), StorageError, Cancelled.
    """
    check_field(dataset, classes)
    cache = open_cache(dataset, side, folder=folder, threads=threads, progress=progress, cancelled=cancelled)
    kept = cache.kept
    if not len(kept):
        raise DataError(f"None of the {len(dataset)} field photos can be used: {reasons(cache.skipped)}.")
    places = np.array([list(classes).index(name) for name in dataset.classes], np.int32)
    skipped = describe_skipped(cache.skipped, "field photo")
    return FieldPhotos(cache, cache.slots[kept], places[dataset.labels[kept]], (skipped,) if skipped else ())


def count_common(one: PhotoCache, other: PhotoCache) -> int:
    """Count the files of `one` that are also in `other`, by content."""
    known = {content.tobytes() for content in one.content[one.kept]}
    return sum(content.tobytes() in known for content in other.content[other.kept])
