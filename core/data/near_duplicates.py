"""Photos that are nearly the same picture, also turned or mirrored: found by a 64-bit hash, proven by a thumbnail.

The hash is a difference hash (is a cell brighter than its neighbour?) over 8 x 8 cells. Candidates are
found without comparing all pairs: two hashes that differ in at most r bits agree in one of r + 1 bands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import cv2
import numpy as np

from core.data.dataset import Cancelled, IsCancelled, ReportProgress
from core.data.mapped_pages import PageReleaser
from core.ops.contract import Array

RADII: Final = ((50_000, 7), (200_000, 5), (1 << 62, 3))
"""Bits in which the hashes of two photos of one picture may differ, for sets of up to so many photos.

Fewer bits make wider bands, and so fewer candidates: 17,445 photos take 2 s with 7 bits, and a million
hashes 55 s with 3. With 3 bits 97 % and more of the unchanged but compressed, turned, mirrored or lighter
copies are still found (7 bits: 99.8 %), of those cut or turned by a little about half.
"""
LIKENESS: Final = 0.96
"""Least correlation of the thumbnails.

Measured with radius 7 on 17,445 leaf photos and changed copies of 400 of them: found are all that were turned,
mirrored, compressed, made lighter, smaller or noisy, 90 % of those turned by 2 degrees, 70 % of those cut by 2 % at
each edge. Of 25 pairs found among the photos themselves 22 were in one group already, and the other three show
one leaf too, by eye (two of them under two labels). 0.95 lets in the first wrong pair, 0.93 twenty.
"""
THUMB: Final = 24
"""Side of the thumbnails that prove a pair; 17,445 of them take 10 MB."""
_GRID: Final = 8
_LARGEST_BUCKET: Final = 2048
"""A band in which more photos than this are equal (and eight times more than by chance) is passed over: it is flat
background, and pairs in it agree in another band, or are not found."""
_BLOCK: Final = 512
"""Photos between two reports of progress."""
_VIEWS: Final = 8
"""Four turns, each plain and mirrored."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class PhotoHashes:
    """hashes: uint64 ``(N, 8)``, of each of a photo's eight views; thumbs: uint8 ``(N, THUMB, THUMB)`` grey."""

    hashes: Array
    thumbs: Array


@final
@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows that show one picture. `likeness` is 1 for equal files."""

    first: int
    second: int
    likeness: float


def hash_photos(
    photos: Array, slots: Array, progress: ReportProgress | None = None, cancelled: IsCancelled | None = None
) -> PhotoHashes:
    """Hashes and thumbnails of the photos at these slots of a cache; about 15,000 photos a second."""
    thumbs = np.empty((len(slots), THUMB, THUMB), np.uint8)
    pages = PageReleaser(photos)
    hashes = np.empty((len(slots), _VIEWS), np.uint64)
    for start in range(0, len(slots), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(slots)))
        for at in range(part.start, part.stop):
            grey = cv2.cvtColor(photos[slots[at]], cv2.COLOR_RGB2GRAY)
            pages.read(3 * grey.size)
            thumbs[at] = cv2.resize(grey, (THUMB, THUMB), interpolation=cv2.INTER_AREA)
        for view in range(_VIEWS):
            hashes[part, view] = difference_hash(_view(thumbs[part], view))
        if cancelled is not None and cancelled():
            raise Cancelled("Looking for near-copies was stopped.")
        if progress is not None:
            progress(part.stop, len(slots))
    return PhotoHashes(hashes, thumbs)


def difference_hash(thumbs: Array) -> Array:
    """64 bits each: whether a cell of an 8 x 9 grid is brighter than its left neighbour; uint64 ``(N,)``."""
    cells = _area_weights(_GRID) @ thumbs.astype(np.float32) @ _area_weights(_GRID + 1).T
    bits = (cells[:, :, 1:] > cells[:, :, :-1]).reshape(len(thumbs), 64)
    return np.packbits(bits, axis=1).view(np.uint64).ravel()


def _area_weights(cells: int) -> Array:
    """Averages of a thumbnail's pixels over equal parts: float32 ``(cells, THUMB)``."""
    edges = np.linspace(0, THUMB, cells + 1)
    low, high = edges[:-1, None], edges[1:, None]
    pixel = np.arange(THUMB)
    overlap = np.clip(np.minimum(high, pixel + 1) - np.maximum(low, pixel), 0, None)
    return np.asarray(overlap * cells / THUMB, np.float32)


def find_pairs(
    prints: PhotoHashes, content: Array | None = None, radius: int | None = None, likeness: float = LIKENESS
) -> list[Pair]:
    """All pairs of photos that show one picture, first < second, sorted; `radius` as RADII says if None.

    content: uint8 ``(N, 32)`` hashes of the files; equal ones are pairs without further proof.
    """
    found: dict[tuple[int, int], float] = {}
    if content is not None:
        found.update({(pair.first, pair.second): pair.likeness for pair in equal_files(content)})
    if radius is None:
        radius = next(bits for most, bits in RADII if len(prints.hashes) <= most)
    for first, second, view in _candidates(prints.hashes, radius):
        match = _correlate(prints.thumbs[first], _view(prints.thumbs[second], view))
        for at in np.flatnonzero(match >= likeness):
            key = (min(int(first[at]), int(second[at])), max(int(first[at]), int(second[at])))
            found[key] = max(found.get(key, 0.0), float(match[at]))
    return [Pair(*key, found[key]) for key in sorted(found)]


def equal_files(content: Array) -> list[Pair]:
    """The first of each set of equal files with each other one; content: uint8 ``(N, 32)``, zero where unread."""
    keys = np.ascontiguousarray(content).view("V32").ravel()
    found = sorted((int(rows[0]), int(row)) for rows in _equal(keys) for row in rows[1:])
    return [Pair(first, second, 1.0) for first, second in found]


def join_pairs(count: int, pairs: list[Pair], groups: Array | None = None) -> Array:
    """Groups int32 ``(count,)`` with the rows of each pair in one group, numbered by first appearance.

    `groups` are joined where a pair runs between two of them; without, every row starts alone.
    """
    start = np.arange(count) if groups is None else np.asarray(groups)
    parent = list(range(int(start.max(initial=-1)) + 1))
    for pair in pairs:
        a, b = _root(parent, int(start[pair.first])), _root(parent, int(start[pair.second]))
        parent[max(a, b)] = min(a, b)
    roots = np.array([_root(parent, at) for at in range(len(parent))], np.int64)[start]
    _, first, inverse = np.unique(roots, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


def join_groups(first: Array, second: Array) -> Array:
    """Groups int32 ``(N,)`` that hold together what either grouping does."""
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
    """One of the eight views: turned by ``view % 4`` quarters, mirrored from 4 on."""
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
    """Index pairs with equal values, in blocks of bounded size; values that more than `most` have are left out."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    start = np.searchsorted(ordered, left, "left")
    length = np.searchsorted(ordered, left, "right") - start
    length[length > most] = 0
    ends = np.cumsum(length)
    block = 1 << 21
    at = 0
    while at < len(left):
        stop = max(int(np.searchsorted(ends, (ends[at - 1] if at else 0) + block, "right")), at + 1)
        part = length[at:stop]
        first = np.repeat(np.arange(at, stop), part)
        offset = np.arange(int(part.sum())) - np.repeat(np.cumsum(part) - part, part)
        yield first, order[np.repeat(start[at:stop], part) + offset]
        at = stop


def _correlate(a: Array, b: Array) -> Array:
    """Correlation of grey pictures ``(n, h, w)`` pairwise; 0 for flat ones."""
    a, b = a.reshape(len(a), -1).astype(np.float32), b.reshape(len(b), -1).astype(np.float32)
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    norm = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.asarray((a * b).sum(1) / np.maximum(norm, 1.0))


def _equal(keys: Array) -> Iterator[Array]:
    """Rows with equal keys, all-zero keys (unread files) left out."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    edges = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1], True])
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        if high - low > 1 and any(ordered[low].tobytes()):
            yield np.sort(order[low:high])
