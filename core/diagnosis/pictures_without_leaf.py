"""Generated pictures without a leaf, which training adds as a class: a network must not name a disease on anything.

They are noise, plain colours, gradients, stripes, and training photos with their tiles in random order. The pictures
are in the photo cache, by content, so a resumed run has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import cv2
import numpy as np

from core.config import RunConfig
from core.data.cache import append_pictures
from core.data.dataset import TRAIN
from core.data.photo import square
from core.data.preparation import PhotoSet
from core.diagnosis.thresholds import NO_LEAF_NAMES, is_no_leaf
from core.ops.contract import Array

MOST: Final = 1000
LEAST: Final = 50
SCRAMBLED: Final = 0.4
"""Share of the pictures that are scrambled photos."""
LARGEST: Final = 400
"""Pixels of a picture's longest side, at most."""


def class_without_leaf(config: RunConfig, classes: Sequence[str], multi: bool) -> tuple[str, ...]:
    """The class of the pictures; empty if the run has none: with several labels, teachers, or such a class already."""
    known = any(is_no_leaf(name) for name in classes)
    return () if known or multi or config.teacher or not config.pictures_without_leaf else NO_LEAF_NAMES[:1]


def count_pictures(config: RunConfig, photos: int) -> int:
    return min(max(round(config.pictures_without_leaf * photos), LEAST), MOST)


def add_pictures(config: RunConfig, photos: PhotoSet) -> PhotoSet:
    """The photos of a run with the generated pictures of its settings. Raises StorageError."""
    added = class_without_leaf(config, photos.classes, photos.sets is not None)
    if not added:
        return photos
    rows, rng, side = photos.rows(TRAIN), np.random.default_rng(config.seed), photos.cache.side
    scenes = (photos.cache.gather(rng.choice(rows, 1))[0] if rng.random() < SCRAMBLED else None
              for _ in range(count_pictures(config, len(rows))))  # fmt: skip
    cache, slots = append_pictures(photos.cache, photos.dataset, (square(draw(rng, scene), side) for scene in scenes))
    note = (f"{len(slots)} generated pictures without a leaf are added to the training photos as the class {added[0]}, "
            "so that the model can say \"no leaf\". --pictures-without-leaf 0 trains without them.")  # fmt: skip
    return replace(photos, cache=cache, pictures=slots, added=added, warnings=(*photos.warnings, note))


def noise(rng: np.random.Generator, height: int, width: int) -> Array:
    """Random pixels of one to 64 pixels, grey or coloured, around a random colour."""
    grain = 1 if rng.random() < 0.5 else int(2 ** rng.uniform(0, 6))
    small = (height // grain + 1, width // grain + 1, int(rng.choice((1, 3))))
    values = rng.uniform(0, 255, small) if rng.random() < 0.5 else rng.normal(128, rng.uniform(10, 90), small)
    how = cv2.INTER_NEAREST if rng.random() < 0.5 else cv2.INTER_CUBIC
    large = cv2.resize(np.broadcast_to(values, (*small[:2], 3)).copy(), (width, height), interpolation=how)
    shift = rng.uniform(-60, 60, 3) if rng.random() < 0.5 else 0
    return np.asarray(large + shift)


def plain(rng: np.random.Generator, height: int, width: int) -> Array:
    """One colour, often black, white or grey, with or without faint noise."""
    colour = np.full(3, rng.choice((0, 255, rng.uniform(0, 255)))) if rng.random() < 0.5 else rng.uniform(0, 255, 3)
    return np.asarray(colour + rng.normal(0, rng.choice((0, 0, 3, 10)), (height, width, 3)))


def gradient(rng: np.random.Generator, height: int, width: int) -> Array:
    """Two colours, that change from one side to the other or from a point outwards."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    angle, middle = rng.uniform(0, 2 * np.pi), rng.uniform(0, 1, 2)
    along = x * np.cos(angle) + y * np.sin(angle) if rng.random() < 0.5 else np.hypot(y - middle[0], x - middle[1])
    share = ((along - along.min()) / (np.ptp(along) + 1e-6))[..., None]
    return np.asarray(rng.uniform(0, 255, 3) * share + rng.uniform(0, 255, 3) * (1 - share))


def stripes(rng: np.random.Generator, height: int, width: int) -> Array:
    """Stripes or checks of two colours."""
    y, x = np.mgrid[:height, :width]
    angle, period = rng.uniform(0, np.pi), rng.uniform(3, 100)
    waves = np.sin(2 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) / period)
    if rng.random() < 0.5:
        waves = waves * np.sin(2 * np.pi * (y * np.cos(angle) - x * np.sin(angle)) / period)
    share = (np.sign(waves) if rng.random() < 0.5 else waves)[..., None] / 2 + 0.5
    return np.asarray(rng.uniform(0, 255, 3) * share + rng.uniform(0, 255, 3) * (1 - share))


KINDS: Final[tuple[Callable[[np.random.Generator, int, int], Array], ...]] = (noise, noise, plain, gradient, stripes)


def draw(rng: np.random.Generator, scene: Array | None = None) -> Array:
    """A picture, uint8 ``(height, width, 3)``; of a scene: with its tiles in random order."""
    if scene is not None:
        size = scene.shape[0] // int(rng.integers(3, 13))
        tiles = [scene[y : y + size, x : x + size] for y in range(0, scene.shape[0] - size + 1, size)
                 for x in range(0, scene.shape[1] - size + 1, size)]  # fmt: skip
        columns = scene.shape[1] // size
        order = rng.permutation(len(tiles))
        return np.vstack([np.hstack([tiles[i] for i in order[at : at + columns]])
                          for at in range(0, len(tiles), columns)])  # fmt: skip
    height, width = (int(side) for side in rng.integers(48, LARGEST, 2))
    make = KINDS[int(rng.integers(len(KINDS)))]
    return np.clip(make(rng, height, width) + 0.5, 0, 255).astype(np.uint8)
