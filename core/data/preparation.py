"""Prepares the photos of a run: opens, decodes, groups and splits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from core.config import RunConfig
from core.data.cache import PhotoCache, open_cache
from core.data.dataset import TEST, TRAIN, UNSPLIT, VALIDATION, Dataset, ReportStage, describe_skipped, ignore, reasons
from core.data.label_sets import LabelSets, read_label_sets
from core.data.near_duplicates import Pair, describe_conflicts, find_conflicts
from core.data.photo_groups import describe_sessions, find_groups
from core.data.source import open_dataset
from core.data.split import Leak, complete_splits, measure_leak, random_split_leak, read_split
from core.data.string_array import readable
from core.errors import ConfigError, DataError, Problem
from core.ops.contract import Array

CheckClasses: TypeAlias = Callable[[Sequence[str], bool], None]
"""Called before photos are decoded, with their classes and whether photos have several; it may raise."""


@dataclass(frozen=True, slots=True, eq=False)
class PhotoSet:
    """The prepared photos of a run.

    splits: int8 ``(N,)`` by row of `dataset`, UNSPLIT for unusable photos; groups: int32 ``(N,)``; leak: data leakage
    of the split; random_leak: of a random split by photo; fingerprint: identity of the data; warnings: for the user;
    sets: the label sets that are the dataset's classes, where photos have several labels; pictures: int64, slots of
    generated pictures in the cache, training photos of the class `added`, which follows the dataset's.
    """

    dataset: Dataset
    cache: PhotoCache
    splits: Array
    groups: Array
    leak: Leak
    random_leak: Leak
    fingerprint: str
    warnings: tuple[str, ...]
    sets: LabelSets | None = None
    pictures: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    added: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of a network for these photos."""
        return (*name_outputs(self.dataset, self.sets), *self.added)

    @property
    def training(self) -> tuple[Array, Array]:
        """Slots in the cache and labels of the training photos and of the pictures, int64 and int32 ``(N,)``."""
        rows, label = self.rows(TRAIN), len(self.dataset.classes)
        pictures = np.full(len(self.pictures), label, np.int32)
        return np.append(self.cache.slots[rows], self.pictures), np.append(self.dataset.labels[rows], pictures)

    def true_labels(self, rows: Array) -> Array:
        """What predictions on these rows are compared with: indices of `classes` int ``(N,)``, or bool ``(N, classes)``
        where photos have several labels."""
        return np.asarray(self.dataset.labels_among(self.classes, self.sets is not None)[rows])

    def rows(self, split: int) -> Array:
        """Rows of a split (TRAIN, VALIDATION, TEST) whose photos can be used, int64."""
        return np.flatnonzero(self.splits == split)

    def contents(self, split: int) -> Array:
        """SHA-256 of the files of a split, uint8 ``(N, 32)``."""
        return np.asarray(self.cache.content[self.rows(split)])


def cache_side(config: RunConfig) -> int:
    """Side of the cached photos: the larger of the network's sides in training and in use.

    A larger cache would make training photos sharper, but take more disk and memory, and make evaluation less sharp.
    """
    return max(config.image_size, config.use_size)


@dataclass(frozen=True, slots=True, eq=False)
class GroupedPhotos:
    """Decoded photos without splits: to review, to adapt to, or the user's field photos.

    groups: int32 ``(N,)`` by row of `dataset`; copies: near-duplicates, None if the source names all groups; sets: as
    in `PhotoSet`.
    """

    dataset: Dataset
    cache: PhotoCache
    groups: Array
    copies: list[Pair] | None
    sets: LabelSets | None = None

    @property
    def labels(self) -> Array:
        """The labels of the dataset, those of equal label sets by one number, int ``(N,)``."""
        return self.dataset.labels if self.sets is None else self.sets.merge_equal(self.dataset.labels)


def name_outputs(dataset: Dataset, sets: LabelSets | None) -> tuple[str, ...]:
    """The names that a network for these photos predicts: the classes, or the labels of photos with several."""
    return dataset.classes if sets is None else sets.labels


def group_photos(
    dataset: Dataset, config: RunConfig, report: ReportStage, check: CheckClasses | None = None
) -> GroupedPhotos:
    """Decode and group photos, as `prepare_photos` does."""
    sets = read_label_sets(dataset.classes, config.labels)
    if sets is not None and config.class_weights != "none":
        raise ConfigError([Problem("class_weights", "cannot be used for photos with several labels.")])
    if check is not None:
        check(name_outputs(dataset, sets), sets is not None)
    cache = open_cache(
        dataset, cache_side(config), folder=config.cache, threads=config.threads, progress=partial(report, "cache")
    )
    _require_photos(dataset, cache, sets)
    return GroupedPhotos(dataset, cache, *find_groups(dataset, cache, partial(report, "copies")), sets)


def prepare_photos(config: RunConfig, report: ReportStage = ignore, check: CheckClasses | None = None) -> PhotoSet:
    """Scan, decode, group and split the photos of `config`. Raises DataError or StorageError."""
    photos = group_photos(open_dataset(config, partial(report, "scan")), config, report, check)
    dataset, cache = photos.dataset, photos.cache
    splits, lost = _split(config, photos)
    used, groups = cache.kept, photos.groups[cache.kept]
    leak = measure_leak(splits[used], groups)
    random_leak = random_split_leak(splits[used], dataset.labels[used], groups, config.seed)
    return PhotoSet(dataset, cache, splits, photos.groups, leak, random_leak, cache.fingerprint(dataset),
                    _warnings(photos, splits, leak, lost), photos.sets)  # fmt: skip


def _find_missing(dataset: Dataset, sets: LabelSets | None, rows: Array) -> list[str]:
    """The names (`name_outputs`) that none of these photos has."""
    there = np.bincount(dataset.labels[rows], minlength=len(dataset.classes)) > 0
    there = there if sets is None else np.any(sets.members[there], axis=0)
    return [name for name, found in zip(name_outputs(dataset, sets), there, strict=True) if not found]


def _require_photos(dataset: Dataset, cache: PhotoCache, sets: LabelSets | None) -> None:
    if not len(cache.kept):
        raise DataError(f"None of the {len(dataset)} photos can be used: {reasons(cache.skipped)}.")
    if empty := _find_missing(dataset, sets, cache.kept):
        unused = ~np.isin(dataset.labels, dataset.labels[cache.kept])
        paths = {readable(dataset.paths[row]) for row in np.flatnonzero(unused).tolist()}
        why = reasons(tuple(skipped for skipped in cache.skipped if skipped.path in paths))
        raise DataError(f"No photo of {', '.join(empty)} can be used: {why}. Replace the photos, or remove the class.")


def _split(config: RunConfig, photos: GroupedPhotos) -> tuple[Array, str]:
    """The splits, and a sentence on missing photos of the file that gives them."""
    dataset, used, lost = photos.dataset, photos.cache.kept, ""
    groups, numbers = np.unique(photos.groups[used], return_inverse=True)
    splits = np.full(len(dataset), UNSPLIT, np.int8)
    if config.split:
        splits, lost = read_split(Path(config.split), dataset, photos.cache, bool(config.where))
    else:
        splits[used] = complete_splits(
            dataset.splits[used], dataset.labels[used], numbers, config.seed, config.validation, config.test
        )
    for split, name in ((TRAIN, "training"), (VALIDATION, "validation")):
        if not np.any(splits == split):
            raise DataError(f"None of the {len(used)} photos (groups: {len(groups)}) is left for "
                            f"{name}. Add photos, or change the validation and test shares.")
    if missing := _find_missing(dataset, photos.sets, splits == TRAIN):
        raise DataError(f"The training split has no photo of {', '.join(missing)}. Change the split, or add photos.")
    return splits, lost


def _warnings(photos: GroupedPhotos, splits: Array, leak: Leak, lost: str) -> tuple[str, ...]:
    dataset, cache = photos.dataset, photos.cache
    conflicts = describe_conflicts(dataset, find_conflicts(photos.labels, cache, photos.copies))
    alike = _describe_alike(name_outputs(dataset, photos.sets))
    sessions = describe_sessions(dataset, cache)
    messages = [text for text in (describe_skipped(cache.skipped), alike, lost, conflicts, sessions) if text]
    if leak.leaked:
        messages.append(leak.describe())
    for split, name in ((VALIDATION, "validation"), (TEST, "test")):
        missing = _find_missing(dataset, photos.sets, splits == split)
        if missing and np.any(splits == split):
            messages.append(f"The {name} split has no photo of {', '.join(missing)}.")
    return tuple(messages)


def _describe_alike(names: Sequence[str]) -> str:
    """A sentence on names that look almost the same, such as Rust and rust; "" without any."""
    alike: dict[str, list[str]] = {}
    for name in names:
        seen = "".join(filter(str.isprintable, name.casefold().replace("_", " ")))
        alike.setdefault(seen, []).append(repr(name))
    found = ", ".join(name for same in alike.values() if len(same) > 1 for name in same)
    return found and (f"The classes {found} differ only in case, underscores or invisible characters. If they are the "
                      "same, give them one name.")  # fmt: skip
