"""Boxes of detected leaves: decoding from the network's maps, fusion, and non-maximum suppression.

Boxes are y0, x0, y1, x1 as shares of a side, ``(N, 4)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from core.ops.contract import Array

Box: TypeAlias = tuple[float, float, float, float]
"""y0, x0, y1, x1 as shares of the side of the photo's centred square; below 0 or above 1 outside it."""
WHOLE: Final[Box] = (0.0, 0.0, 1.0, 1.0)
"""The box of the whole centred square."""
SAME: Final = 0.5
"""Intersection over union from which boxes of two predictions become one."""
DOUBLE: Final = 0.45
"""Intersection over union from which the less confident of two boxes is omitted."""


def as_box(numbers: Array | Sequence[float]) -> Box:
    y0, x0, y1, x1 = (float(v) for v in numbers)
    return y0, x0, y1, x1


def decode_maps(maps: Array, least: float) -> tuple[Array, Array]:
    """Boxes ``(N, 4)`` as shares of the input's side and scores ``(N,)``, the best first.

    They are of the cells that no neighbour beside, above or below surpasses: leaves whose centres are diagonal
    neighbours are two. A box that a better one overlaps by `SAME` is omitted.
    """
    cells = maps.shape[0]
    centre = 1 / (1 + np.exp(-maps[..., 0].astype(np.float64)))
    around = np.pad(centre, 1)
    beside = (around[1:-1, :-2], around[1:-1, 2:], around[:-2, 1:-1], around[2:, 1:-1])
    ys, xs = np.nonzero((centre >= np.maximum.reduce(beside)) & (centre >= least))
    found = maps[ys, xs].astype(np.float64)
    half = np.exp(np.clip(found[:, 1:3], -5, 0)) / 2
    middle = (np.stack([ys, xs], axis=1) + 0.5 + found[:, 3:5]) / cells
    boxes, scores = np.concatenate([middle - half, middle + half], axis=1), centre[ys, xs]
    kept = suppress(boxes, scores, SAME)
    return boxes[kept], scores[kept]


def fuse(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Weighted boxes fusion (Solovyev et al., 2021) of two predictions, each boxes ``(N, 4)`` and scores ``(N,)``.

    Boxes that overlap each other most become their mean, weighted by score. Scores are means too: a box that only one
    prediction has gets half of its score.
    """
    (boxes, scores), (others, weights) = first, second
    table = np.array([overlaps(box, others) for box in boxes]).reshape(len(boxes), len(others))
    pairs = np.argwhere((table >= SAME) & (table == table.max(axis=0, initial=0))
                        & (table == table.max(axis=1, initial=0)[:, None]))  # fmt: skip
    i, j = pairs.T
    sums = scores[i] + weights[j]
    joint = (boxes[i] * scores[i, None] + others[j] * weights[j, None]) / sums[:, None]
    alone = [np.delete(a, k, axis=0) for a, k in ((boxes, i), (others, j), (scores, i), (weights, j))]
    return np.concatenate([joint, *alone[:2]]), np.concatenate([sums, *alone[2:]]) / 2


def suppress(boxes: Array, scores: Array, double: float = DOUBLE) -> list[int]:
    """Non-maximum suppression: indices of the boxes that no better one overlaps by `double`, the best first."""
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        if not kept or overlaps(boxes[index], boxes[kept]).max() < double:
            kept.append(int(index))
    return kept


def overlaps(box: Array | Sequence[float], boxes: Array) -> Array:
    """Intersection over union of a box with each of `boxes` ``(N, 4)``."""
    one = np.asarray(box, np.float64)
    sides = np.maximum(np.minimum(one[2:], boxes[:, 2:]) - np.maximum(one[:2], boxes[:, :2]), 0)
    shared = sides.prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) + (one[2:] - one[:2]).prod()
    return np.asarray(shared / np.maximum(areas - shared, 1e-12))
