"""The user's own field photos: a second test set, used neither for training nor for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from core.config import RunConfig
from core.data.cache import PhotoCache, check_home, open_cache
from core.data.dataset import Dataset, ReportStage, describe_skipped, ignore, reasons
from core.data.label_sets import name_labels
from core.data.photo_groups import find_groups
from core.data.source import open_photos
from core.errors import DataError
from core.ops.contract import Array


@final
@dataclass(frozen=True, slots=True, eq=False)
class FieldPhotos:
    """Decoded field photos.

    slots: int64 ``(N,)``, the usable photos in `cache.photos`; labels: class indices of the network int32 ``(N,)``, or
    bool ``(N, classes)`` where photos have several labels; groups: int32 ``(N,)``; warnings: sentences for the user.
    """

    cache: PhotoCache
    slots: Array
    labels: Array
    groups: Array
    warnings: tuple[str, ...] = ()


def scan_field(config: RunConfig) -> Dataset | None:
    """List the photos of `config.field`, a folder or manifest; None without. Raises DataError, also for a cache folder
    among them, and InputError if caches cannot be there."""
    if not config.field:
        return None
    try:
        dataset = open_photos(config.field, "" if Path(config.field).is_dir() else config.label)
        check_home(dataset, config.cache)
        return dataset
    except DataError as error:
        raise DataError(f"Field photos (--field): {error}") from error


def check_field(dataset: Dataset, classes: Sequence[str], multi: bool = False) -> None:
    """Raise DataError if the field photos have a class that the network does not have."""
    unknown = [name for name in dataset.classes if not set(name_labels(name, multi)) <= set(classes)]
    if unknown:
        raise DataError(f"The field photos have the class {', '.join(unknown)}, which is not a known class. "
                        f"Use these class names: {', '.join(classes)}.")


def open_field(
    dataset: Dataset, classes: Sequence[str], side: int, config: RunConfig, multi: bool, report: ReportStage = ignore
) -> FieldPhotos:
    """Decode the photos of `scan_field` to squares of `side` pixels, with classes matched by name.

    Raises DataError (also for a class that the network does not have), StorageError.
    """
    check_field(dataset, classes, multi)
    cache = open_cache(dataset, side, folder=config.cache, threads=config.threads, progress=partial(report, "cache"))
    kept = cache.kept
    if not len(kept):
        raise DataError(f"None of the {len(dataset)} field photos can be used: {reasons(cache.skipped)}.")
    labels = dataset.labels_among(classes, multi)
    skipped = describe_skipped(cache.skipped, "field photo")
    groups, _ = find_groups(dataset, cache, partial(report, "copies"))
    return FieldPhotos(cache, cache.slots[kept], labels[kept], groups[kept], (skipped,) if skipped else ())


def count_common(one: PhotoCache, other: PhotoCache) -> int:
    """Count the files of `one` that are also in `other`, by content."""
    known = {content.tobytes() for content in one.content[one.kept]}
    return sum(content.tobytes() in known for content in other.content[other.kept])
