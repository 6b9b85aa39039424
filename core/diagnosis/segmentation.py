"""Segments a photo into background, leaf and lesion with a small network on features of each pixel.

The features are colours around the pixel and activations of the small model (`benchmarks.segmentation_training` trains
the network). The leaf is the region nearest the middle.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import cv2
import numpy as np

from core.diagnosis.context_features import compute_context
from core.diagnosis.model_identity import SHIPPED
from core.diagnosis.pixel_features import GLOBAL, LOCAL, SIDE, middle_weight, pixel_features
from core.diagnosis.severity import Severity
from core.ops.contract import Array
from core.tensor_file import read_tensor_file

KIND: Final = "segmentation"
VERSION: Final = 2
PATH: Final = SHIPPED / "segmentation.safetensors"
BACKGROUND, LEAF, LESION = range(3)
"""Channels of the probabilities."""
MOST_PRODUCTS: Final = 1 << 18
"""Multiplications of one matrix product. OpenBLAS computes so small ones on one thread: its other threads would wait
actively, on the cores that the diagnosis network needs. NumPy multiplies a stack of matrices one by one."""
STACK: Final = 16
"""Matrices of a stack, which then stays in the processor's cache."""
SMALLEST: Final = 0.01
"""Smallest area of the leaf, as a share of the photo."""
LEAF_AREA: Final = 0.05
LEAF_RATIO: Final = 0.4
"""Smallest area of a further leaf, as a share of the photo and of the largest region."""
LARGEST_HOLE: Final = 0.02
"""Largest area of a hole in the leaf that is filled, as a share of the photo."""
SPECK: Final = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
"""Regions thinner than this are removed."""
BOX_MARGIN: Final = 0.06
"""Margin of the square around the leaf, as a share of the leaf's longer side."""
RIM: Final = 0.012
"""Width of the leaf's rim, in sides of the photo. Rim pixels mix leaf and background, so they are lesion only where
they touch a lesion inside the rim."""


def segment(rgb: Array) -> Severity:
    """Masks of the leaf nearest the middle and of its lesions, on a uint8 RGB photo; both empty without a leaf."""
    return segment_leaves(rgb)[0]


def segment_leaves(rgb: Array) -> tuple[Severity, int]:
    """The masks of `segment`, and the number of regions that are large enough to be leaves."""
    height, width = rgb.shape[:2]
    p = classify(rgb)
    plants = cv2.morphologyEx((p[BACKGROUND] < 0.5).astype(np.uint8), cv2.MORPH_OPEN, SPECK)
    region = _region_in_middle(plants)
    if region.mean() < SMALLEST:
        return Severity(*np.zeros((2, height, width), np.bool_)), 0
    inside, excess = (cv2.resize(v, (width, height)) for v in (region.astype(np.float32), p[LESION] - p[LEAF]))
    leaf = inside > 0.5
    lesions = ((excess > 0) & leaf).astype(np.uint8)
    rim = max(round(RIM * min(height, width)), 1)
    inner = lesions & cv2.erode(leaf.astype(np.uint8), np.ones((2 * rim + 1, 2 * rim + 1), np.uint8))
    near = cv2.dilate(inner, np.ones((2 * rim + 3, 2 * rim + 3), np.uint8))
    return Severity(leaf, (lesions & near) > 0), _count_leaves(plants)


def classify(rgb: Array) -> Array:
    """Probabilities of `BACKGROUND`, `LEAF` and `LESION`, float32 ``(3, SIDE, SIDE)``, of a uint8 RGB photo."""
    photo = cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    local, scales, whole = pixel_features(photo)
    (first, bias), *layers = _layers()
    own, photos, around = np.split(first, (LOCAL, LOCAL + GLOBAL), axis=1)
    maps = _first_layer([*scales, *compute_context(photo)], around)
    maps[-1] += bias + photos @ whole
    rows = SIDE
    while rows * max(weight.size for weight, _ in layers) > MOST_PRODUCTS:
        rows //= 2
    pixels, x = (values.reshape(-1, rows, values.shape[-1]) for values in (local, _enlarge(maps)))
    logits = np.empty((*x.shape[:2], 3), np.float32)
    for begin in range(0, len(x), STACK):
        part = pixels[begin : begin + STACK] @ own.T
        part += x[begin : begin + STACK]
        for weight, shift in layers:
            part = np.maximum(part, 0, out=part) @ weight.T
            part += shift
        logits[begin : begin + STACK] = part
    e = np.ascontiguousarray(logits.reshape(-1, 3).T)
    np.exp(e - e.max(axis=0), out=e)
    return np.asarray(e / e.sum(axis=0)).reshape(3, SIDE, SIDE)


def _first_layer(maps: list[Array], weight: Array) -> list[Array]:
    """Products of the first layer with feature maps, before they are enlarged: ``(height, width, units)`` each."""
    ends = np.cumsum([values.shape[-1] for values in maps])
    return [values @ part.T for values, part in zip(maps, np.split(weight, ends[:-1], axis=1), strict=True)]


def _enlarge(maps: list[Array]) -> Array:
    """The sum of maps of several sizes, enlarged to ``(SIDE, SIDE, units)``; each size is twice the one before."""
    total, *finer = sorted(maps, key=len)
    for part in finer:
        total = part + (total if len(total) == len(part) else cv2.resize(total, part.shape[1::-1]))
    return np.asarray(cv2.resize(total, (SIDE, SIDE)))


@cache
def _layers() -> list[tuple[Array, Array]]:
    """Weight ``(out, in)`` and bias of each dense layer of the shipped network. Raises ModelFileError."""
    tensors = read_tensor_file(PATH, KIND, VERSION).tensors
    return [(tensors[f"dense{i}.weight"], tensors[f"dense{i}.bias"]) for i in range(len(tensors) // 2)]


def _count_leaves(mask: Array) -> int:
    """The number of regions as large as `LEAF_AREA` and `LEAF_RATIO` require, at least 1.

    It is 1 where plants cover most of the border, because leaves cannot be distinguished there.
    """
    if np.concatenate((mask[0], mask[-1], mask[:, 0], mask[:, -1])).mean() > 0.5:
        return 1
    areas = cv2.connectedComponentsWithStats(mask, connectivity=4)[2][1:, cv2.CC_STAT_AREA]
    return max(int((areas >= max(LEAF_AREA * SIDE**2, LEAF_RATIO * areas.max(initial=0))).sum()), 1)


def _region_in_middle(mask: Array) -> Array:
    """The region nearest the middle of a mask uint8 ``(SIDE, SIDE)``, with its small holes filled."""
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


def leaf_box(leaf: Array) -> tuple[int, int, int, int]:
    """A square y0, x0, y1, x1 (end excluded) around the leaf with a margin; the whole photo if there is none."""
    height, width = leaf.shape
    x, y, wide, high = cv2.boundingRect(leaf.astype(np.uint8))
    if not wide:
        return (0, 0, height, width)
    side = min(round(max(wide, high) * (1 + 2 * BOX_MARGIN)), height, width)
    y = min(max((2 * y + high - side) // 2, 0), height - side)
    x = min(max((2 * x + wide - side) // 2, 0), width - side)
    return (y, x, y + side, x + side)
