"""The user's own field photos: a second test set that nothing is learned from and nothing is chosen by."""

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
    """slots: int64 ``(N,)``, places of the usable photos in `cache.photos`; labels: int32 ``(N,)``, the network's class
    numbers; warnings: sentences for the user."""

    cache: PhotoCache
    slots: Array
    labels: Array
    warnings: tuple[str, ...] = ()


def scan_field(source: str, label: str = "") -> Dataset:
    """The names of the photos in a folder or manifest (there `label` is the column with the class).

    Raises DataError.
    """
    try:
        return open_photos(source, "" if Path(source).expanduser().is_dir() else label)
    except DataError as error:
        raise DataError(f"Field photos (--field): {error}") from error


def check_field(dataset: Dataset, classes: Sequence[str]) -> None:
    """Raises DataError where field photos have a class that the network does not learn."""
    unknown = [name for name in dataset.classes if name not in classes]
    if unknown:
        raise DataError(
            f"The field photos have the class {', '.join(unknown)}, which the network does not learn. Name their "
            f"folders (or the column with the class) as its classes are: {', '.join(classes)}."
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
    """Photos of `scan_field`, classes matched by name, decoded to squares of `side` pixels.

    Raises DataError, also for a class that the network does not learn; StorageError; Cancelled.
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
    """Files of one set that the other has too, by content."""
    known = {content.tobytes() for content in one.content[one.kept]}
    return sum(content.tobytes() in known for content in other.content[other.kept])
