"""Which pixels of a photo are background, leaf and lesion: a small network on the colours around each pixel.

The network sees no shapes, so that it also works for crops that it was not trained on. It is trained by
`benchmarks.segmentation_training`. The leaf is the region nearest the middle.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import cv2
import numpy as np

from core.diagnosis.model_identity import SHIPPED
from core.diagnosis.pixel_features import LOCAL, SIDE, middle_weight, pixel_features
from core.diagnosis.severity import Severity
from core.ops.contract import Array
from core.tensor_file import read_tensor_file

KIND: Final = "segmentation"
VERSION: Final = 1
PATH: Final = SHIPPED / "segmentation.safetensors"
BACKGROUND, LEAF, LESION = range(3)
"""Channels of the probabilities."""
BLOCK: Final = 160
"""Pixels classified at a time. OpenBLAS computes such small products on one thread (at most 2^18 multiplications): its
other threads would wait actively, on the cores that the diagnosis network needs."""
SMALLEST: Final = 0.01
"""Share of the photo below which a region is no leaf."""
LEAF_AREA: Final = 0.05
LIKE_LARGEST: Final = 0.4
"""Shares of the photo's area, and of the largest region's, from which a region counts as one more leaf."""
LARGEST_HOLE: Final = 0.02
"""Share of the photo up to which a hole in the leaf is filled."""
SPECK: Final = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
"""Regions that are thinner than this are no leaf."""
RIM: Final = 0.012
"""Width of the rim of the leaf, in sides of the photo. Its pixels mix leaf and background: lesion only beside one."""


def segment(rgb: Array) -> Severity:
    """Masks of the leaf nearest the middle and of its lesions, on a uint8 RGB photo; both empty without a leaf."""
    return segment_leaves(rgb)[0]


def segment_leaves(rgb: Array) -> tuple[Severity, int]:
    """The masks of `segment`, and how many regions of the photo are as large as leaves."""
    height, width = rgb.shape[:2]
    p = classify(rgb)
    plants = cv2.morphologyEx((p[BACKGROUND] < 0.5).astype(np.uint8), cv2.MORPH_OPEN, SPECK)
    leaf = _region_in_middle(plants)
    if leaf.mean() < SMALLEST:
        return Severity(np.zeros((height, width), np.bool_), np.zeros((height, width), np.bool_)), 0
    inside, excess = (cv2.resize(v, (width, height)) for v in (leaf.astype(np.float32), p[LESION] - p[LEAF]))
    whole = inside > 0.5
    lesions = ((excess > 0) & whole).astype(np.uint8)
    rim = max(round(RIM * min(height, width)), 1)
    near = cv2.dilate(lesions & cv2.erode(whole.astype(np.uint8), _square(rim)), _square(rim + 1))
    return Severity(whole, (lesions & near) > 0), _count_leaves(plants)


def segment_leaf(rgb: Array) -> Array:
    """Mask of the leaf nearest the middle, bool ``(height, width)``, of a uint8 RGB photo; all false without one."""
    return segment(rgb).leaf


def classify(rgb: Array) -> Array:
    """Probabilities of `BACKGROUND`, `LEAF` and `LESION`, float32 ``(3, SIDE, SIDE)``, of a uint8 RGB photo."""
    local, whole = pixel_features(cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA))
    (first, bias), *layers = _layers()
    bias = bias + first[:, LOCAL:] @ whole
    rows, logits = local.reshape(-1, LOCAL), np.empty((3, SIDE * SIDE), np.float32)
    for begin in range(0, len(rows), BLOCK):
        x = rows[begin : begin + BLOCK] @ first[:, :LOCAL].T
        x += bias
        for weight, shift in layers:
            x = np.maximum(x, 0, out=x) @ weight.T
            x += shift
        logits[:, begin : begin + BLOCK] = x.T
    e = np.exp(logits - logits.max(axis=0))
    return np.asarray(e / e.sum(axis=0)).reshape(3, SIDE, SIDE)


@cache
def _layers() -> list[tuple[Array, Array]]:
    """Weight ``(out, in)`` and bias of each dense layer of the shipped network. Raises ModelFileError."""
    tensors = read_tensor_file(PATH, KIND, VERSION).tensors
    return [(tensors[f"dense{i}.weight"], tensors[f"dense{i}.bias"]) for i in range(len(tensors) // 2)]


def _count_leaves(mask: Array) -> int:
    """Regions with at least `LEAF_AREA` of the photo and `LIKE_LARGEST` of the largest one's area; 1 or more. Where
    plants cover most of the border, leaves cannot be told apart: 1."""
    if np.concatenate((mask[0], mask[-1], mask[:, 0], mask[:, -1])).mean() > 0.5:
        return 1
    areas = cv2.connectedComponentsWithStats(mask, connectivity=4)[2][1:, cv2.CC_STAT_AREA]
    return max(int((areas >= max(LEAF_AREA * SIDE**2, LIKE_LARGEST * areas.max(initial=0))).sum()), 1)


def _region_in_middle(mask: Array) -> Array:
    """The region nearest the middle of a mask uint8 ``(SIDE, SIDE)``, its small holes filled."""
    count, regions = cv2.connectedComponents(mask, connectivity=4)
    if count < 2:
        return np.asarray(mask)
    weight = np.bincount(regions.ravel(), middle_weight().ravel(), count)
    weight[0] = -1
    outside = (regions != weight.argmax()).astype(np.uint8)
    _, holes, boxes, _ = cv2.connectedComponentsWithStats(outside, connectivity=4)
    x, y, width, height, area = boxes.T
    inside = (x > 0) & (y > 0) & (x + width < SIDE) & (y + height < SIDE)
    filled = inside & (area < LARGEST_HOLE * SIDE**2)
    filled[0] = True  # the leaf itself
    return np.asarray(filled[holes]).astype(np.uint8)


def leaf_box(leaf: Array, margin: float = 0.06) -> tuple[int, int, int, int]:
    """A square y0, x0, y1, x1 (end excluded) around the leaf with some margin; the whole photo if there is none."""
    height, width = leaf.shape
    ys, xs = np.nonzero(leaf)
    if not len(ys):
        return (0, 0, height, width)
    y0, y1, x0, x1 = int(ys.min()), int(ys.max()) + 1, int(xs.min()), int(xs.max()) + 1
    side = min(round(max(y1 - y0, x1 - x0) * (1 + 2 * margin)), height, width)
    y = min(max((y0 + y1 - side) // 2, 0), height - side)
    x = min(max((x0 + x1 - side) // 2, 0), width - side)
    return (y, x, y + side, x + side)


def _square(rim: int) -> Array:
    return np.ones((2 * rim + 1, 2 * rim + 1), np.uint8)
