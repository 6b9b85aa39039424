"""Finds near-duplicate photos, also rotated or mirrored: candidates by a 64-bit hash, confirmed by a thumbnail.

The hash is a difference hash over 8 x 8 cells. Candidates are found without comparing all pairs: two hashes that differ
in at most r bits agree in at least one of r + 1 bands. The result is stored with the cache of the photos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from core.data.array_file import MappedPages, read_arrays, write_arrays
from core.data.cache import PhotoCache
from core.data.dataset import Dataset, ReportProgress, ignore
from core.data.string_array import number_values, readable
from core.errors import StorageError
from core.ops.contract import Array

RADII: Final = ((50_000, 7), (200_000, 5), (1 << 62, 3))
"""(largest number of photos, bits in which the hashes of near-duplicates may differ).

Fewer bits make wider bands and fewer candidates. With 3 bits at least 97 % of recompressed, rotated by 90 degrees,
mirrored or brightened copies are found (7 bits: 99.8 %), and about half of those cropped or rotated slightly.
"""
LIKENESS: Final = 0.96
"""Smallest correlation of the thumbnails of near-duplicates.

Measured with radius 7 on 17,445 leaf photos and altered copies of 400 of them: all rotated, mirrored, recompressed,
brightened, downscaled or noisy copies are found, 90 % of those rotated by 2 degrees, 70 % of those cropped by 2 % at
each edge. No wrong pair is found; 0.95 gives one, 0.93 twenty.
"""
THUMB: Final = 24
"""Side of the thumbnails, in pixels."""
_LARGEST_BUCKET: Final = 2048
"""Band values shared by more photos than this, and eight times more than by chance, are skipped: flat background."""
_BLOCK: Final = 512
"""Photos between two progress reports."""
_VIEWS: Final = 8
"""Four rotations, each unchanged and mirrored."""
VERSION: Final = 2
"""Version of the search: stored results of another version are not used."""
SHOWN: Final = 3
"""Largest number of pairs named in a sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class PhotoHashes:
    """Hashes uint64 ``(N, 8)``, one for each rotation and mirror image; grey thumbs ``(N, THUMB, THUMB)``."""

    hashes: Array
    thumbs: Array


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows of near-duplicates; `likeness` is the correlation of their thumbnails, 1 for identical files."""

    first: int
    second: int
    likeness: float


def hash_photos(photos: Array, slots: Array, progress: ReportProgress = ignore) -> PhotoHashes:
    """Compute the hashes and thumbnails of the photos in these slots of a cache."""
    thumbs = np.empty((len(slots), THUMB, THUMB), np.uint8)
    pages = MappedPages(photos)
    hashes = np.empty((len(slots), _VIEWS), np.uint64)
    for start in range(0, len(slots), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(slots)))
        for at in range(part.start, part.stop):
            pages.check()
            grey = cv2.cvtColor(photos[slots[at]], cv2.COLOR_RGB2GRAY)
            pages.read(3 * grey.size)
            thumbs[at] = cv2.resize(grey, (THUMB, THUMB), interpolation=cv2.INTER_AREA)
        for view in range(_VIEWS):
            hashes[part, view] = difference_hash(_view(thumbs[part], view))
        progress(part.stop, len(slots))
    return PhotoHashes(hashes, thumbs)


def difference_hash(thumbs: Array) -> Array:
    """Difference hashes, uint64 ``(N,)``: whether each cell of an 8 x 9 grid is brighter than its left neighbour."""
    column = thumbs.reshape(-1, THUMB).astype(np.float32)
    cells = cv2.resize(column, (9, 8 * len(thumbs)), interpolation=cv2.INTER_AREA).reshape(-1, 8, 9)
    return np.packbits(cells[:, :, 1:] > cells[:, :, :-1]).view(np.uint64)


def find_pairs(photos: PhotoHashes, content: Array | None = None) -> list[Pair]:
    """All pairs of near-duplicates, sorted, first < second.

    content: uint8 ``(N, 32)``, SHA-256 of the files; identical files are pairs without a comparison.
    """
    same = [] if content is None else equal_files(content)
    found = {(pair.first, pair.second): pair.likeness for pair in same}
    radius = next(bits for most, bits in RADII if len(photos.hashes) <= most)
    for first, second, view in _candidates(photos.hashes, radius):
        match = _correlate(photos.thumbs[first], _view(photos.thumbs[second], view))
        for at in np.flatnonzero(match >= LIKENESS):
            key = (min(int(first[at]), int(second[at])), max(int(first[at]), int(second[at])))
            found[key] = max(found.get(key, 0.0), float(match[at]))
    return [Pair(*key, found[key]) for key in sorted(found)]


def equal_files(content: Array) -> list[Pair]:
    """Pair the first of each set of identical files with each other one; content: uint8 ``(N, 32)``, 0 if unread."""
    first = {content[row].tobytes(): row for row in np.flatnonzero(content.any(axis=1))[::-1].tolist()}
    found = ((first.get(key.tobytes(), row), row) for row, key in enumerate(content))
    return [Pair(one, row, 1.0) for one, row in sorted(found) if one != row]


def join_pairs(count: int, pairs: list[Pair], groups: Array | None = None) -> Array:
    """Groups int32 ``(count,)`` that pairs join, from `groups` or one per row; numbered by first appearance."""
    start = np.arange(count) if groups is None else np.asarray(groups)
    parent = list(range(int(start.max(initial=-1)) + 1))
    for pair in pairs:
        a, b = _root(parent, int(start[pair.first])), _root(parent, int(start[pair.second]))
        parent[max(a, b)] = min(a, b)
    roots = np.array([_root(parent, at) for at in range(len(parent))], np.int64)[start]
    return number_values(roots)


def join_groups(first: Array, second: Array) -> Array:
    """The finest groups int32 ``(N,)`` that contain both groupings."""
    order = np.argsort(second, kind="stable")
    same = np.flatnonzero(second[order][1:] == second[order][:-1])
    pairs = [Pair(int(order[at]), int(order[at + 1]), 1.0) for at in same]
    return join_pairs(len(first), pairs, first)


def _root(parent: list[int], at: int) -> int:
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at


def _view(thumbs: Array, view: int) -> Array:
    """One of the eight views: rotated by ``view % 4`` times 90 degrees, mirrored from 4 on."""
    turned = np.rot90(thumbs, view % 4, axes=(1, 2))
    return turned[:, :, ::-1] if view >= _VIEWS // 2 else turned


def _candidates(hashes: Array, radius: int) -> Iterator[tuple[Array, Array, int]]:
    """Pairs (first, second, view of the second) whose hashes differ in at most `radius` bits."""
    count = len(hashes)
    plain = hashes[:, 0]
    edges = np.linspace(0, 64, radius + 2).astype(int)
    most = max(_LARGEST_BUCKET, 8 * count // 2 ** (64 // (radius + 1)))
    for view in range(_VIEWS):
        other = hashes[:, view]
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            mask = np.uint64(((1 << int(high - low)) - 1) << int(low))
            for first, second in _meet(plain & mask, other & mask, most):
                near = (np.bitwise_count(plain[first] ^ other[second]) <= radius) & (first != second)
                if view == 0:
                    near &= first < second
                if near.any():
                    yield first[near], second[near], view


def _meet(left: Array, right: Array, most: int) -> Iterator[tuple[Array, Array]]:
    """Index pairs with equal values, in bounded blocks; values that occur more than `most` times are skipped."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    start = np.searchsorted(ordered, left, "left")
    length = np.searchsorted(ordered, left, "right") - start
    length[length > most] = 0
    ends = np.cumsum(length)
    block = 1 << 15
    at = 0
    while at < len(left):
        stop = max(int(np.searchsorted(ends, (ends[at - 1] if at else 0) + block, "right")), at + 1)
        part = length[at:stop]
        first = np.repeat(np.arange(at, stop), part)
        offset = np.arange(int(part.sum())) - np.repeat(np.cumsum(part) - part, part)
        yield first, order[np.repeat(start[at:stop], part) + offset]
        at = stop


def _correlate(a: Array, b: Array) -> Array:
    """Correlation of each pair of grey images ``(n, h, w)``; 0 for constant images."""
    a, b = a.reshape(len(a), -1).astype(np.float32), b.reshape(len(b), -1).astype(np.float32)
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    norm = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.asarray((a * b).sum(1) / np.maximum(norm, 1.0))


def find_near_duplicates(cache: PhotoCache, progress: ReportProgress = ignore) -> list[Pair]:
    """Pairs of near-duplicates, from the stored result if no photo has changed."""
    kept = cache.kept
    mark = sha256(f"{VERSION} {cache.side} ".encode() + cache.content[kept].tobytes()).digest()
    path = Path(cache.home) / f"{cache.side}.copies"
    stored = read_arrays(path)
    if stored is None or stored["mark"].tobytes() != mark:
        pairs = find_pairs(hash_photos(cache.photos, cache.slots[kept], progress), cache.content[kept])
        table = np.array([(pair.first, pair.second, pair.likeness) for pair in pairs]).reshape(-1, 3)
        stored = {"mark": np.frombuffer(mark, np.uint8), "pairs": table}
        with suppress(StorageError):  # it is searched for again
            write_arrays(path, stored)
    return [Pair(int(kept[int(one)]), int(kept[int(other)]), likeness)
            for one, other, likeness in stored["pairs"].tolist()]  # fmt: skip


def find_conflicts(labels: Array, cache: PhotoCache, copies: Sequence[Pair] | None) -> list[Pair]:
    """The near-duplicates (or, if not searched for, identical files) whose labels differ."""
    if copies is None:
        copies = equal_files(np.where(cache.slots[:, None] >= 0, cache.content, 0))
    return [pair for pair in copies if labels[pair.first] != labels[pair.second]]


def describe_conflicts(dataset: Dataset, conflicts: Sequence[Pair]) -> str:
    """A sentence with the number of conflicts and the first of them; empty if there are none."""
    if not conflicts:
        return ""
    named = [" = ".join(f"{readable(dataset.paths[row])} ({dataset.label(row)})" for row in (pair.first, pair.second))
             for pair in conflicts[:SHOWN]]  # fmt: skip
    pairs = "; ".join(named + (["…"] if len(conflicts) > SHOWN else []))
    return f"Pictures with two labels: {len(conflicts)} ({pairs}). Correct the labels, or remove these photos."
