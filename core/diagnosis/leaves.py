"""Several leaves in one photo: a diagnosis of each, and one of the photo, which is the worst finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.data.photo import square
from core.diagnosis.leaf_detector import FoundLeaf
from core.diagnosis.prediction import Box, LeafDiagnosis, Predictor, list_top
from core.diagnosis.verdict import NO_LEAF, Thresholds, count_findings
from core.ops.contract import Array

MARGIN: Final = 0.06
"""Around a leaf, as a share of its longer side."""
LIKE_LARGEST: Final = 0.1
"""Smallest area of a leaf, as a share of the largest leaf's: smaller ones are in the background."""


def choose_leaves(found: Sequence[FoundLeaf]) -> list[FoundLeaf]:
    """The leaves that the photo is about: those not much smaller than the largest one."""
    areas = [(y1 - y0) * (x1 - x0) for y0, x0, y1, x1 in (leaf.box for leaf in found)]
    return [leaf for leaf, area in zip(found, areas, strict=True) if area >= LIKE_LARGEST * max(areas)]


def diagnose_leaves(
    predictor: Predictor, thresholds: Thresholds | None, rgb: Array, found: Sequence[FoundLeaf], coverage: float
) -> list[LeafDiagnosis]:
    """Diagnose each of the leaves of a whole photo, uint8 RGB; regions without a leaf are omitted. Worst first."""
    if not found:
        return []
    side, classes = predictor.model.source_side, predictor.model.classes
    photos = np.stack([cut_square(rgb, leaf.box, side) for leaf in found])
    leaves: list[LeafDiagnosis] = []
    for leaf, prediction in zip(found, predictor.predict_calibrated(photos), strict=True):
        top = list_top(prediction.probabilities, thresholds, classes)
        leaves.append(LeafDiagnosis(leaf.box, predictor.decide(prediction, coverage), top, prediction))
    leaves = [leaf for leaf in leaves if leaf.verdict.word != NO_LEAF]
    ranks = {word: rank for rank, (word, _) in enumerate(count_findings([leaf.verdict.word for leaf in leaves]))}
    return sorted(leaves, key=lambda leaf: (ranks[leaf.verdict.word], -leaf.top[0].probability))


def cut_square(rgb: Array, box: Box, side: int) -> Array:
    """The square around a box, inside the photo, uint8 ``(side, side, 3)``."""
    height, width = rgb.shape[:2]
    short = min(height, width)
    corner = np.array((height - short, width - short)) / 2
    low, high = corner + short * np.array(box[:2]), corner + short * np.array(box[2:])
    size = min(max(round(float((high - low).max()) * (1 + 2 * MARGIN)), 8), short)
    y, x = (round(float(v)) for v in np.clip((low + high - size) / 2, 0, np.array((height, width)) - size))
    return square(rgb[y : y + size, x : x + size], side)
