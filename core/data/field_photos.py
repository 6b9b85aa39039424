"""The user's own field photos: a second test set, used neither for training nor for validation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from core.config import RunConfig
from core.data.cache import PhotoCache, check_home, open_cache
from core.data.dataset import Dataset, ReportStage, describe_skipped, ignore, reasons
from core.data.label_sets import name_labels, read_label_sets
from core.data.photo_groups import find_groups
from core.data.preparation import GroupedPhotos
from core.data.source import open_photos
from core.errors import DataError


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
) -> GroupedPhotos:
    """Decode the photos of `scan_field` to squares of `side` pixels, with classes matched by name.

    Raises DataError (also for a class that the network does not have), StorageError.
    """
    check_field(dataset, classes, multi)
    cache = open_cache(dataset, side, folder=config.cache, threads=config.threads, progress=partial(report, "cache"))
    if not len(cache.kept):
        raise DataError(f"None of the {len(dataset)} field photos can be used: {reasons(cache.skipped)}.")
    sets = read_label_sets(dataset.classes, "multi" if multi else "single")
    return GroupedPhotos(dataset, cache, *find_groups(dataset, cache, partial(report, "copies")), sets)


def describe_field(field: GroupedPhotos | None, trained: PhotoCache | None = None) -> tuple[str, ...]:
    """Sentences on field photos that cannot be used, and on those that are also in the dataset of the training."""
    if field is None:
        return ()
    known = set() if trained is None else {content.tobytes() for content in trained.content[trained.kept]}
    common = sum(content.tobytes() in known for content in field.cache.content[field.cache.kept])
    leak = f"Data leakage: {common} of the field photos are also in the dataset. The accuracy on them is too high."
    return tuple(filter(None, (describe_skipped(field.cache.skipped, "field photo"), leak if common else "")))
