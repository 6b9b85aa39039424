"""Splits photos by group into training, validation and test: stratified by class, with their leakage and their file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from core.data.cache import PhotoCache
from core.data.dataset import SPLITS, TEST, TRAIN, UNSPLIT, VALIDATION, Dataset
from core.data.manifest import open_manifest
from core.data.string_array import ENCODING, ERRORS
from core.errors import DataError
from core.ops.contract import Array
from core.storage import write_file
from core.text import csv_lines

RANDOM_SPLITS: Final = 20
"""A single one can leak almost nothing by chance, or twice as much as others."""


def split_by_group(labels: Array, groups: Array, seed: int, validation: float, test: float) -> Array:
    """Splits int8 ``(N,)`` with approximately the given shares of photos in every class.

    A group with photos of several classes counts as its most frequent class. Within a class the groups are assigned in
    random order (of few, at most one more than splits: the largest first), each to the split that brings the shares
    closest to their targets. Every class of three groups or more has photos in every split with a share.
    """
    homes = _home_class(labels, groups)
    splits_of_group = np.zeros(len(homes), np.int8)
    sizes = np.bincount(groups)
    shares = np.array([1 - validation - test, validation, test])
    for label in np.unique(homes[homes >= 0]):
        random = np.random.Generator(np.random.Philox(key=[seed, int(label)]))
        members = random.permutation(np.flatnonzero(homes == label))
        if len(members) <= np.count_nonzero(shares) + 1:  # else training may get only the smallest
            members = members[np.argsort(-sizes[members], kind="stable")]
        splits_of_group[members] = _assign_splits(sizes[members], shares)
    return splits_of_group[groups]


def complete_splits(splits: Array, labels: Array, groups: Array, seed: int, validation: float, test: float) -> Array:
    """Complete the splits that a source gives: rows without a split are split by group.

    Without validation photos, some are taken from the training photos. A missing test split is not made from photos
    that the source calls training or validation photos.
    """
    given, known = splits != UNSPLIT, np.full(groups.max() + 1, UNSPLIT, np.int8)
    known[groups[given]] = splits[given]
    joined = np.where(given, splits, known[groups])  # the split of their group, if it has one
    done = np.where(joined == UNSPLIT, split_by_group(labels, groups, seed, validation, test), joined)
    if given.any() and not np.any(done == VALIDATION):
        train = np.flatnonzero(done == TRAIN)
        done[train] = split_by_group(labels[train], groups[train], seed, validation, 0.0)
    return done


@dataclass(frozen=True, slots=True)
class Leak:
    """Numbers of held-out photos (validation and test), and of those of them whose group is also in training, or, of
    test photos, in validation, which chooses the epoch."""

    held_out: int
    leaked: int

    def describe(self) -> str:
        return (f"Data leakage: {self.leaked} of {self.held_out} validation and test photos have a photo of the same "
                "group in training or, of test photos, in validation. The accuracy measured on them is too high.")


def measure_leak(splits: Array, groups: Array) -> Leak:
    """Count the held-out photos that share a group with a photo of an earlier split: TRAIN, VALIDATION, TEST."""
    used = splits != UNSPLIT
    first = np.full(groups.max() + 1, TEST)
    np.minimum.at(first, groups[used], splits[used])
    return Leak(int((splits > TRAIN).sum()), int((first[groups] < splits).sum()))


def random_split_leak(splits: Array, labels: Array, groups: Array, seed: int) -> Leak:
    """The mean leakage of `RANDOM_SPLITS` splits by photo, drawn at random with the same class counts as `splits`."""
    shuffled, leaked = splits.copy(), 0
    random = np.random.Generator(np.random.Philox(key=[seed, 2**32]))
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(RANDOM_SPLITS):
        for rows in members:
            shuffled[rows] = random.permutation(splits[rows])
        leaked += measure_leak(shuffled, groups).leaked
    return Leak(measure_leak(splits, groups).held_out, round(leaked / RANDOM_SPLITS))


def _home_class(labels: Array, groups: Array) -> Array:
    """The most frequent class of each group (the first of a tie); -1 for unused group numbers."""
    count = int(groups.max(initial=-1)) + 1
    classes = int(labels.max(initial=0)) + 1
    pairs, sizes = np.unique(groups.astype(np.int64) * classes + labels, return_counts=True)
    order = np.lexsort((pairs, -sizes))
    homes = np.full(count, -1, np.int64)
    owners, first = np.unique(pairs[order] // classes, return_index=True)
    homes[owners] = pairs[order][first] % classes
    return homes


def _assign_splits(sizes: Array, shares: Array) -> Array:
    """A split for each group in turn: the one that brings the counts closest to their targets."""
    aims = [float(a) for a in shares * sizes.sum()]
    have = [0.0, 0.0, 0.0]
    wanted = [s for s in (TRAIN, VALIDATION, TEST) if aims[s] > 0]
    out = np.empty(len(sizes), np.int8)
    empty = list(wanted)
    for at, size in enumerate(sizes.tolist()):
        left = len(sizes) - at
        options = empty if empty and left <= len(empty) else wanted
        best = min(options, key=lambda s: (abs(have[s] + size - aims[s]) - abs(have[s] - aims[s]), have[s] / aims[s]))
        out[at] = best
        have[best] += size
        if best in empty:
            empty.remove(best)
    return out


def write_split(path: Path, dataset: Dataset, cache: PhotoCache, splits: Array, groups: Array) -> None:
    """Write one line per used photo. Raises StorageError."""
    own = dataset.groups is not None and not dataset.ungrouped.any() and np.array_equal(groups, dataset.groups)
    names = dataset.group_names if own else None

    def rows() -> Iterator[Sequence[str]]:
        yield "path", "label", "group", "split", "sha256"
        for row in np.flatnonzero(splits != UNSPLIT).tolist():
            group = f"g{groups[row]}" if names is None else names[groups[row]]
            content = cache.content[row].tobytes().hex()
            yield dataset.paths[row], dataset.label(row), group, SPLITS[splits[row]], content

    write_file(path, "".join(csv_lines(rows())).encode(ENCODING, ERRORS))


def open_split(path: Path) -> tuple[Dataset, dict[bytes, int]]:
    """The photos of a split.csv, and the row of each content. Raises DataError if it is no such file."""
    try:
        written = open_manifest(path, label="label", columns=("sha256",))
        return written, {bytes.fromhex(text): at for at, text in enumerate(written.columns["sha256"]) if text}
    except (DataError, ValueError) as error:
        raise DataError(f"{path} is not the split of a run. Choose the split.csv of a run folder. {error}") from error


def read_split(path: Path, dataset: Dataset, cache: PhotoCache, filtered: bool = False) -> tuple[Array, str]:
    """Read the splits int8 ``(N,)`` of the rows of `dataset`, with a sentence on missing photos, "" without any.

    Photos are matched by content (their files may have been renamed), else by path. filtered: photos of rows that
    `dataset` leaves out are not missing. Raises DataError if photos are new or have another class.
    """
    written, by_content = open_split(path)
    by_path = {photo: at for at, photo in enumerate(written.paths)}
    contents = [content.tobytes() for content in cache.content]
    splits = np.full(len(dataset), UNSPLIT, np.int8)
    unknown = []
    for row in cache.kept:
        at = by_path.get(dataset.paths[row])
        if at is None or written.columns["sha256"][at] != contents[row].hex():
            at = by_content.get(contents[row], at)
        if at is None or written.splits[at] == UNSPLIT:  # its cell was emptied
            unknown.append(dataset.paths[row])
            continue
        if written.label(at) != dataset.label(row):
            raise DataError(f"{dataset.paths[row]} has the class {dataset.label(row)}, but {written.label(at)} in the "
                            f"split {path}. Make a new split, or correct the class.")
        splits[row] = written.splits[at]
    if unknown:
        raise DataError(f"{len(unknown)} photos are not in the split {path}, such as {unknown[0]}. Make a new split "
                        "(without --split), or remove the new photos.")
    paths = set(dataset.paths) if filtered else by_path
    gone = [by_content[one] for one in by_content.keys() - {contents[at] for at in cache.kept}]
    lost = [SPLITS[written.splits[at]] for at in gone if written.paths[at] in paths]
    counts = ", ".join(f"{name} {lost.count(name)}" for name in SPLITS if name in lost)
    return splits, counts and f"Photos of the split {path} are missing or were edited: {counts}. Figures will differ."
