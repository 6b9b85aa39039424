"""Training examples of the leaf detector: boxed photos, photos composed of cut-out leaves, plants and single leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from benchmarks.composed_photos import CutLeaf, compose, compound_leaf, random_background, random_shape
from benchmarks.detector_training import Example
from core.diagnosis.calibration import crop_of
from core.diagnosis.leaf_detector import GREY, letterbox
from core.ops.contract import Array

BY_HAND: Final = "by hand"
LEAF_CONDITIONS: Final = ("healthy", "leaf_spot", "nutrient_deficiency", "calcium_deficiency", BY_HAND)
"""Labels of strawberry boxes that mean leaves; most boxes of `powdery_mildew` are on fruit, and are ignored."""
UNCLEAR: Final = "powdery_mildew"
COMPOUND: Final = 0.2
"""Share of composed leaves that are made of three leaflets of strawberry, whose boxes are around whole leaves."""
REAL: Final = 0.2
"""Share of composed leaves that are cut from boxed photos; in plants it is `REAL_IN_PLANTS`."""
REAL_IN_PLANTS: Final = 0.7
PASTED: Final = 0.4
"""Share of boxed photos on which leaves of other boxed photos are laid."""
COVERED: Final = 0.6
"""Share of a box under later leaves from which it is ignored."""
EMPTY: Final = 0.3
"""Weight of what is not boxed in a strawberry photo: not all of its leaves are."""
BEHIND: Final = 0.6
"""Weight of what is behind boxed leaves in the foreground, other leaves too."""
TURN: Final = 12
"""Degrees by which half of the photos are turned, at most."""
HUE: Final = 11
"""Change of the hue at most, of 180."""
SHARES: Final = (0.11, 0.18, 0.095, 0.05, 0.145)
"""Of photos of one lab leaf, of leaves in the foreground, of a leaf laid before plants, of scenes and of plants, among
examples that are not from boxed strawberry photos; the rest are leaves composed on scenes."""
ONE_CROP: Final = 0.5
"""Share of photos composed on scenes whose leaves are all of one crop, so that leaves that touch look alike. Not of
strawberry, whose leaflets touch in one leaf."""
NO_BOXES: Final = np.zeros((0, 4))


@dataclass(frozen=True, slots=True, eq=False)
class Pools:
    """What examples are made of. real: leaves cut from boxed photos; boxed: photos, boxes in pixels, ignored boxes;
    single: whole lab photos, one box; foreground: field photos, boxes of leaves in the foreground."""

    leaves: Sequence[CutLeaf]
    real: Sequence[CutLeaf]
    scenes: Sequence[Array]
    foliage: Sequence[Array]
    boxed: Sequence[tuple[Array, Array, Array]]
    single: Sequence[tuple[Array, Array]]
    foreground: Sequence[tuple[Array, Array]]


def read_pools(folder: Path, everything: bool) -> Pools:
    """Training examples; everything: boxed validation photos too."""
    index = json.loads((folder / "pack.json").read_text())
    part, more = index["train"], index["val"] if everything else {"boxed": [], "real": []}

    def read(name: str) -> Array:
        found = cv2.imread(str(folder / name), cv2.IMREAD_UNCHANGED)
        return np.asarray(found[..., [2, 1, 0, *range(3, found.shape[2])]])

    def read_leaf(name: str, label: str) -> CutLeaf:
        rgba = read(name)
        return CutLeaf(rgba[..., :3], rgba[..., 3].astype(np.float32) / 255, label)

    boxed = [(read(name), *read_boxes(boxes)) for name, boxes in part["boxed"] + more["boxed"]]
    single = [(read(name), np.array([place], np.float64)) for name, place in part["single"]]
    foreground = [(read(name), np.array(places, np.float64)) for name, places in part["foreground"]]
    return Pools([read_leaf(*item) for item in part["leaves"]],
                 [read_leaf(name, "strawberry") for name in part["real"] + more["real"]],
                 [read(n) for n in part["scenes"]], [read(n) for n in part["foliage"]], boxed, single,
                 foreground)  # fmt: skip


def read_boxes(boxes: Sequence[Sequence[Any]]) -> tuple[Array, Array]:
    """Leaf boxes and unclear ones, y0, x0, y1, x1 in pixels, float ``(N, 4)``."""
    parts = ([b[:4] for b in boxes if b[4] in kinds] for kinds in (LEAF_CONDITIONS, (UNCLEAR,)))
    leaves, unclear = (np.array(part, np.float64).reshape(-1, 4) for part in parts)
    return leaves, unclear


def make_example(rng: np.random.Generator, pools: Pools, side: int, share: float) -> Example:
    """One example; share: of those from boxed photos."""
    kind = rng.random()
    if kind < 0.75 * share:
        return boxed_example(rng, pools, side)
    if kind < share:
        return mosaic(rng, [boxed_example(rng, pools, side) for _ in range(4)], side)
    kind = int(np.searchsorted(np.cumsum(SHARES), rng.random(), side="right"))
    if kind == 0:
        photo, boxes = pools.single[rng.integers(len(pools.single))]
        return framed(*random_part(rng, photo, boxes, NO_BOXES, 0.55), 1.0, side)
    if kind == 1:
        photo, boxes = pools.foreground[rng.integers(len(pools.foreground))]
        return framed(*random_part(rng, photo, boxes, NO_BOXES, 0.6), BEHIND, side)
    if kind == 2:
        return before_plants(rng, pools, side)
    if kind == 3:
        scene = pools.scenes[rng.integers(len(pools.scenes))]
        return framed(*random_part(rng, scene, NO_BOXES, NO_BOXES, 0.55), 1.0, side)
    if kind == 4:
        return plant(rng, pools, side)
    count = int(rng.choice(6, p=(0.12, 0.2, 0.2, 0.18, 0.15, 0.15))) + 1
    source, real = (of_one_crop(rng, pools), 0.0) if rng.random() < ONE_CROP else (pools, REAL)
    chosen = [random_leaf(rng, source, real) for _ in range(count)]
    background = random_background(rng, pools.scenes, pools.foliage, random_shape(rng, side))
    made = compose(rng, chosen, background, (0.15, 0.9 if count == 1 else 0.65))
    return framed(jitter(rng, made.photo), made.boxes, NO_BOXES, 1.0, side)


def before_plants(rng: np.random.Generator, pools: Pools, side: int) -> Example:
    """A large leaf before plants that are blurred or small; their leaves are background."""
    shape = random_shape(rng, side)
    if rng.random() < 0.5:
        part, *_ = random_part(rng, pools.foliage[rng.integers(len(pools.foliage))], NO_BOXES, NO_BOXES, 0.4)
        behind = cv2.resize(part, shape[::-1], interpolation=cv2.INTER_LINEAR)
    else:
        leaves = [random_leaf(rng, pools, REAL_IN_PLANTS) for _ in range(int(rng.integers(3, 10)))]
        behind = compose(rng, leaves, random_background(rng, pools.scenes, pools.foliage, shape), (0.2, 0.5), 0.7).photo
    if rng.random() < 0.8:
        behind = cv2.GaussianBlur(behind, (0, 0), rng.uniform(1, 7))
    dark = (behind * rng.uniform(0.5, 1)).astype(np.uint8)
    made = compose(rng, [random_leaf(rng, pools, REAL)], dark, (0.6, 0.98))
    return framed(jitter(rng, made.photo), made.boxes, NO_BOXES, float(len(made.boxes) > 0), side)


def plant(rng: np.random.Generator, pools: Pools, side: int) -> Example:
    """Many leaves that hide parts of each other."""
    chosen = [random_leaf(rng, pools, REAL_IN_PLANTS) for _ in range(int(rng.integers(4, 16)))]
    background = random_background(rng, pools.scenes, pools.foliage, random_shape(rng, side))
    made = compose(rng, chosen, background, (0.15, 0.6), hidden=0.7)
    hidden = np.array([covered_share(box, made.boxes[i + 1 :]) for i, box in enumerate(made.boxes)]) > COVERED
    return framed(jitter(rng, made.photo), made.boxes[~hidden], made.boxes[hidden], 1.0, side)


def boxed_example(rng: np.random.Generator, pools: Pools, side: int) -> Example:
    """A random part of a boxed photo, at times with leaves of other boxed photos laid on it."""
    photo, boxes, ignored = random_part(rng, *pools.boxed[rng.integers(len(pools.boxed))], 0.4)
    if rng.random() < PASTED:
        chosen = [random_leaf(rng, pools, 1.0) for _ in range(int(rng.integers(1, 4)))]
        made = compose(rng, chosen, photo, (0.2, 0.5))
        hidden = np.array([covered_share(box, made.boxes) for box in boxes], np.float64) > 0.3
        photo = made.photo
        ignored = np.concatenate([ignored, boxes[hidden]])
        boxes = np.concatenate([boxes[~hidden], made.boxes])
    return framed(photo, boxes, ignored, EMPTY, side)


def random_leaf(rng: np.random.Generator, pools: Pools, real: float) -> CutLeaf:
    """One of the leaves, of a boxed photo, or three of strawberry as leaflets of one."""
    kind = rng.random()
    if kind < real:
        return pools.real[rng.integers(len(pools.real))]
    if kind >= real + (1 - real) * (1 - COMPOUND):
        leaflets = [leaf for leaf in pools.leaves if crop_of(leaf.label) == "strawberry"]
        if leaflets:
            return compound_leaf(rng, [leaflets[i] for i in rng.integers(0, len(leaflets), 3)])
    return pools.leaves[rng.integers(len(pools.leaves))]


def of_one_crop(rng: np.random.Generator, pools: Pools) -> Pools:
    """The lab leaves of a random crop other than strawberry."""
    crop = rng.choice(sorted({crop_of(leaf.label) for leaf in pools.leaves} - {"strawberry"}))
    return replace(pools, leaves=[leaf for leaf in pools.leaves if crop_of(leaf.label) == crop])


def covered_share(box: Array, others: Array) -> float:
    """Share of a box, pixels, that `others` cover."""
    y0, x0, y1, x1 = box
    canvas = np.zeros((32, 32), bool)
    for other in others:
        a, b, c, d = np.clip((other - (y0, x0, y0, x0)) / (y1 - y0, x1 - x0, y1 - y0, x1 - x0) * 32, 0, 32).astype(int)
        canvas[a:c, b:d] = True
    return float(canvas.mean())


def mosaic(rng: np.random.Generator, parts: Sequence[Example], side: int) -> Example:
    """Four examples as the quarters of one, divided at a random point."""
    photo = np.zeros((side, side, 3), np.uint8)
    at = (rng.uniform(0.35, 0.65, 2) * side).astype(int)
    boxes, ignored = [], []
    for number, part in enumerate(parts):
        start, end = (np.where([number // 2, number % 2], *ends) for ends in ((at, 0), (side, at)))
        size = end - start
        photo[start[0] : end[0], start[1] : end[1]] = cv2.resize(part.photo, (int(size[1]), int(size[0])),
                                                                 interpolation=cv2.INTER_AREA)  # fmt: skip
        scale, shift = np.tile(size, 2) / side, np.tile(start, 2) / side
        boxes.append(part.boxes * scale + shift)
        ignored.append(part.ignored * scale + shift)
    return Example(photo, np.concatenate(boxes), np.concatenate(ignored), EMPTY)


def random_part(
    rng: np.random.Generator, photo: Array, boxes: Array, ignored: Array, least: float
) -> tuple[Array, Array, Array]:
    """A random part of a photo, stretched and in other colours, and its boxes; boxes that are cut off are ignored."""
    height, width = photo.shape[:2]
    zoom = rng.uniform(least, 1.0) ** 0.5 * rng.uniform(0.85, 1, 2) if rng.random() < 0.8 else np.ones(2)
    high, wide = (round(n * z) for n, z in zip((height, width), zoom, strict=True))
    y, x = int(rng.integers(0, height - high + 1)), int(rng.integers(0, width - wide + 1))
    stretch = np.exp(rng.uniform(-0.2, 0.2, 2))
    size = max(round(high * stretch[0]), 8), max(round(wide * stretch[1]), 8)
    part = cv2.resize(photo[y : y + high, x : x + wide], size[::-1], interpolation=cv2.INTER_AREA)
    shift, scale = np.array((y, x) * 2), np.tile(size, 2) / (high, wide, high, wide)
    boxes, ignored = (boxes - shift) * scale, (ignored - shift) * scale
    if rng.random() < 0.5:
        part, boxes, ignored = rotated(part, (boxes, ignored), rng.uniform(-TURN, TURN))
    limit = np.tile(size, 2)
    cut = np.clip(boxes, 0, limit)
    areas = [np.maximum((b[:, 2:] - b[:, :2]).prod(axis=1), 1e-9) for b in (cut, boxes)]
    whole = areas[0] > 0.6 * areas[1]
    return jitter(rng, part), cut[whole], np.concatenate([np.clip(ignored, 0, limit), cut[~whole]])


def rotated(photo: Array, boxes: Sequence[Array], degrees: float) -> tuple[Array, Array, Array]:
    """The photo turned in its frame, and the boxes around the ellipses in them, turned along."""
    height, width = photo.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1.0)
    part = cv2.warpAffine(photo, turn, (width, height), borderMode=cv2.BORDER_CONSTANT, borderValue=GREY)
    cosine, sine = turn[0, :2] ** 2
    table = np.array(((cosine, sine), (sine, cosine)))
    moved = []
    for those in boxes:
        middle, half = (those[:, :2] + those[:, 2:]) / 2, (those[:, 2:] - those[:, :2]) / 2
        x, y = turn @ np.stack([middle[:, 1], middle[:, 0], np.ones(len(those))])
        high, wide = np.sqrt(half**2 @ table).T
        moved.append(np.stack([y - high, x - wide, y + high, x + wide], axis=1))
    return np.asarray(part), moved[0], moved[1]


def jitter(rng: np.random.Generator, photo: Array) -> Array:
    """Other light, white balance, saturation and hue; at times blurred."""
    if rng.random() < 0.5:
        hsv = cv2.cvtColor(photo, cv2.COLOR_RGB2HSV)
        levels = np.arange(256)
        hue = ((levels + rng.uniform(-HUE, HUE)) % 180).astype(np.uint8)
        saturation = np.clip(levels * rng.uniform(0.5, 1.5), 0, 255).astype(np.uint8)
        photo = cv2.cvtColor(cv2.LUT(hsv, np.stack([hue, saturation, levels.astype(np.uint8)], 1)[None]),
                             cv2.COLOR_HSV2RGB)  # fmt: skip
    if rng.random() < 0.15:
        photo = cv2.GaussianBlur(photo, (0, 0), rng.uniform(0.5, 2))
    gain = rng.uniform(0.7, 1.3) * rng.uniform(0.92, 1.08, 3)
    bright = (np.arange(256)[:, None] / 255) ** rng.uniform(0.75, 1.35) * 255
    table = np.clip(bright * gain + rng.uniform(-15, 15), 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(photo, table[None]))


def framed(photo: Array, boxes: Array, ignored: Array, empty: float, side: int) -> Example:
    """The photo in a grey square, with boxes as shares of the square."""
    height, width = photo.shape[:2]
    long = max(height, width)
    corner = np.array(((long - height) / 2, (long - width) / 2) * 2)
    return Example(letterbox(photo, side), (boxes + corner) / long, (ignored + corner) / long, empty)


def turned(rng: np.random.Generator, example: Example) -> Example:
    """The example turned by quarters or mirrored."""
    photo, boxes, ignored = example.photo, example.boxes, example.ignored
    if rng.random() < 0.5:
        photo, boxes, ignored = cv2.transpose(photo), boxes[:, [1, 0, 3, 2]], ignored[:, [1, 0, 3, 2]]
    for axis in (0, 1):
        if rng.random() < 0.5:
            photo = cv2.flip(photo, axis)
            order = [2, 1, 0, 3] if axis == 0 else [0, 3, 2, 1]
            mirrored = np.arange(4) % 2 == axis
            boxes, ignored = (np.where(mirrored, 1 - b[:, order], b) for b in (boxes, ignored))
    return Example(np.asarray(photo), boxes, ignored, example.empty)
