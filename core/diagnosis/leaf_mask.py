"""Which pixels are the leaf: a plant-colour index for a start, then two rounds of GrabCut at 112 pixels.

No training, so that it holds for crops never seen. Works on the square photo of `core.data.photo`.
"""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np

from core.ops.contract import Array

SIDE: Final = 112
"""GrabCut works at this side: 15 to 25 ms on one core; at 224 it takes four times as long for one point of overlap."""
ROUNDS: Final = 2
RING: Final = 8
"""Width of the border, in pixels of 112, whose colours tell what lies behind the leaf."""
GREEN_BEHIND: Final = 30.0
"""Median plant index of the border above which the leaf lies on other leaves, so that colour alone cannot tell."""
SMALLEST: Final = 0.01
"""Share of the photo below which a found leaf is none."""
LEAF_AREA: Final = 0.05
LIKE_LARGEST: Final = 0.4
"""Shares of the photo's area, and of the largest region's, from which on a region counts as one more leaf."""


def segment_leaf(rgb: Array) -> Array:
    """Mask of the leaf nearest the middle, bool ``(height, width)``, of a uint8 RGB photo; all false without one."""
    return segment_leaves(rgb)[0]


def segment_leaves(rgb: Array) -> tuple[Array, int]:
    """The mask of `segment_leaf`, and how many regions of the photo are as large as leaves. Where other leaves lie
    behind the leaf they cannot be told apart: then it is 1.

    Source of the refinement: Rother et al., "GrabCut", 2004 (OpenCV's); its random start is fixed.
    """
    height, width = rgb.shape[:2]
    small = cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    seeds = _seeds(small)
    found = seeds & 1
    if not found.any() or found.all():
        return np.zeros((height, width), np.bool_), 0
    cv2.setRNGSeed(0)
    cv2.grabCut(small, seeds, None, np.zeros((1, 65)), np.zeros((1, 65)), ROUNDS, cv2.GC_INIT_WITH_MASK)
    plants = _without_specks((seeds & 1).astype(np.uint8))
    leaf = _one_piece(plants)
    soft = cv2.resize(leaf.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    mask = np.asarray(cv2.GaussianBlur(soft, (5, 5), 0) > 0.5)
    if mask.mean() < SMALLEST:
        return np.zeros((height, width), np.bool_), 0
    return mask, 1 if _green_behind(small) > GREEN_BEHIND else _count_leaves(plants)


def _count_leaves(plants: Array) -> int:
    """Regions with at least `LEAF_AREA` of the photo and `LIKE_LARGEST` of the largest one's area; 1 or more."""
    _, _, regions, _ = cv2.connectedComponentsWithStats(plants, connectivity=4)
    areas = regions[1:, cv2.CC_STAT_AREA]
    return max(int((areas >= max(LEAF_AREA * SIDE * SIDE, LIKE_LARGEST * areas.max(initial=0))).sum()), 1)


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


def _seeds(small: Array) -> Array:
    """GrabCut's four labels from colour: plants are green (a < 0) or yellow (b > 0), paper and shadow neither."""
    lab = _lab(small)
    light, a, b = lab[..., 0], lab[..., 1], lab[..., 2]
    index = _plant_index(lab)
    behind = _green_behind(small)
    central = _centrality()
    if behind > GREEN_BEHIND:
        return _seeds_on_leaves(lab, central)
    # Otsu separates leaf and background; on soil its threshold counts up to 20, on paper dead tissue must stay in
    q = np.clip(index * 3 + 60, 0, 255).astype(np.uint8)
    otsu = (cv2.threshold(q, 0, 255, cv2.THRESH_OTSU)[0] - 60) / 3
    coloured = behind > 5
    plant = (index - np.clip(otsu, *((4, 20) if coloured else (2, 4)))) / 10
    seeds = np.full((SIDE, SIDE), cv2.GC_PR_BGD, np.uint8)
    seeds[plant > 0.3] = cv2.GC_PR_FGD
    seeds[(plant > 1) & (central > 0.35)] = cv2.GC_FGD
    seeds[_ring(5) & (plant < 0)] = cv2.GC_BGD
    if coloured:
        seeds[(seeds == cv2.GC_PR_FGD) & (central < 0.2)] = cv2.GC_PR_BGD
    seeds[(light < 22) & (np.hypot(a, b) < 5)] = cv2.GC_BGD
    return seeds


def _lab(small: Array) -> Array:
    """CIELAB of uint8 RGB, float32; a and b around zero."""
    lab = cv2.cvtColor(small, cv2.COLOR_RGB2LAB).astype(np.float32)
    return np.asarray(lab - np.array((0, 128, 128), np.float32))


def _plant_index(lab: Array) -> Array:
    a, b = lab[..., 1], lab[..., 2]
    return np.asarray(b - 0.6 * np.minimum(a, 0) - 1.2 * np.maximum(a, 0))  # red soil and skin are no plant


def _green_behind(small: Array) -> float:
    """Median plant index of the photo's border."""
    return float(np.median(_plant_index(_lab(small))[_ring(RING)]))


def _seeds_on_leaves(lab: Array, central: Array) -> Array:
    """Labels where plants stand behind the leaf: what has the colour of the middle is the leaf."""
    scaled = cv2.GaussianBlur(lab * np.array((0.5, 1, 1), np.float32), (5, 5), 0)
    core = central > 0.55
    middle = np.median(scaled[core], axis=0)
    spread = np.maximum(1.5 * np.median(np.abs(scaled[core] - middle), axis=0), 3)
    distance = np.sqrt((((scaled - middle) / spread) ** 2).mean(axis=-1))
    seeds = np.full((SIDE, SIDE), cv2.GC_PR_BGD, np.uint8)
    seeds[(distance < 1.6) & (central > 0.1)] = cv2.GC_PR_FGD
    seeds[core & (distance < 2)] = cv2.GC_FGD
    seeds[_ring(5) & (distance > 1.6)] = cv2.GC_BGD
    seeds[(distance > 4) & (central < 0.4)] = cv2.GC_BGD
    return seeds


def _without_specks(mask: Array) -> Array:
    """A mask uint8 without stalks and specks."""
    return np.asarray(cv2.morphologyEx(mask, cv2.MORPH_OPEN, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))))


def _one_piece(mask: Array) -> Array:
    """The part nearest the middle; holes under 2 % of the photo are filled."""
    count, parts = cv2.connectedComponents(mask, connectivity=4)
    if count < 2:
        return mask
    weight = np.bincount(parts.ravel(), (_centrality() ** 2).ravel(), count)
    weight[0] = -1
    mask = (parts == weight.argmax()).astype(np.uint8)
    count, parts, boxes, _ = cv2.connectedComponentsWithStats(1 - mask, connectivity=4)
    for part in range(1, count):
        x, y, width, height, area = boxes[part]
        inside = x > 0 and y > 0 and x + width < SIDE and y + height < SIDE
        if inside and area < 0.02 * SIDE * SIDE:
            mask[parts == part] = 1
    return np.asarray(mask)


def _ring(width: int) -> Array:
    ring = np.ones((SIDE, SIDE), np.bool_)
    ring[width:-width, width:-width] = False
    return ring


def _centrality() -> Array:
    """1 in the middle, 0 at the corners, falling evenly."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1) - 0.5
    return np.asarray(1 - np.clip(np.hypot(x, y) / 0.7, 0, 1))
