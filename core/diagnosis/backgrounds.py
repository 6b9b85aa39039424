"""Leaf masks and backgrounds of the training photos, for training with replaced backgrounds; computed once and cached.

A background is a training photo whose leaf is inpainted from its surroundings, as in
`core.diagnosis.background_dependence`. The masks (`core.diagnosis.segmentation`) are alike in every run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from core.cores import usable_cores
from core.data.array_file import complete_rows
from core.data.dataset import TRAIN, ReportStage
from core.data.loader import occurrences
from core.data.map_ahead import map_ahead
from core.data.mixing import BackgroundReplacement
from core.data.preparation import PhotoSet
from core.diagnosis.leaf_process import choose_processes, packing
from core.diagnosis.thresholds import without_leaf
from core.errors import DataError
from core.ops.contract import Array
from core.ops.photo import Backgrounds

MOST_BACKGROUNDS: Final = 512
"""Most backgrounds, evenly from all classes: 77 MB at 224 pixels."""
AREA: Final = (0.06, 0.9)
"""Leaf areas that are cut out, as shares of the photo: smaller ones are specks, larger ones have no background."""
PAINTED: Final = 0.75
"""Largest leaf area that is inpainted."""
SEAM: Final = 0.7
"""Standard deviation of the Gaussian blur of a mask's edge, in mask pixels of two photo pixels."""
VERSION: Final = 4
"""Version of the masks, to be raised when `core.diagnosis.segmentation` changes."""


def prepare_replacement(photos: PhotoSet, chance: float, report: ReportStage) -> BackgroundReplacement:
    """Compute masks and backgrounds of training photos. Raises DataError without leaves, StorageError."""
    rows, classes = photos.rows(TRAIN), photos.dataset.classes
    side, found = photos.cache.side, _leaves(photos, rows, report)
    share = np.array([_unpack(leaf).mean() for leaf in found])
    bare = without_leaf(photos.dataset.labels[rows], classes)
    can = ~bare & (share >= AREA[0]) & (share <= AREA[1])
    backgrounds = _make_backgrounds(photos, rows, np.flatnonzero(bare | (can & (share <= PAINTED))), found, bare)
    if not can.any() or not len(backgrounds):
        raise DataError("No leaf was found in these photos. --augment-background needs photos of leaves.")
    slots, count = photos.cache.slots[rows], len(photos.cache.photos)
    masks = np.zeros((count, side // 2, side // 2), np.uint8)
    for slot, leaf in zip(slots, found, strict=True):
        masks[slot] = _soft(_unpack(leaf))
    replaceable = np.zeros(count, np.bool_)
    replaceable[slots] = can
    return BackgroundReplacement(Backgrounds(masks, backgrounds), replaceable, chance)


def count_bytes(training: int, photos: int, side: int) -> tuple[int, int]:
    """Bytes of masks and backgrounds, and of temporary arrays meanwhile; training, photos: numbers of photos."""
    kept = photos * (side // 2) ** 2 + min(training, MOST_BACKGROUNDS) * 3 * side**2
    return kept, training * side * ((side + 7) // 8)


def _leaves(photos: PhotoSet, rows: Array, report: ReportStage) -> Array:
    """Leaf masks of these rows as bits ``(N, side, side / 8)``; masks that are not in the file are computed."""
    cache, cores = photos.cache, usable_cores()

    def find_all(missing: Array) -> Array:
        def find(at: int) -> Array:
            return pack(np.asarray(cache.photos[cache.slots[rows[at]]]))

        masks = []
        with packing(choose_processes(len(missing), cores)) as pack, closing(
            map_ahead(find, missing, cores, 2 * cores)
        ) as found:
            for mask in found:
                masks.append(mask)
                report("leaves", len(masks), len(missing))
        return np.stack(masks)

    return complete_rows(Path(cache.home) / f"{cache.side}-leaves-{VERSION}.npz", cache.content[rows], find_all)


def _unpack(leaf: Array) -> Array:
    """A mask as uint8 ``(side, side)``, 1 on the leaf."""
    return np.unpackbits(leaf, axis=-1, count=len(leaf))


def _make_backgrounds(photos: PhotoSet, rows: Array, fit: Array, masks: Array, bare: Array) -> Array:
    """Inpaint the leaves of photos evenly from all classes: uint8 ``(backgrounds, side, side, 3)``.

    fit: indices into `rows` of suitable photos; masks: leaf masks of all rows; bare: bool ``(len(rows),)``, photos
    without a leaf, which stay unchanged.
    """
    rank_in_class = occurrences(photos.dataset.labels[rows[fit]])
    chosen = fit[np.argsort(rank_in_class, kind="stable")][:MOST_BACKGROUNDS]
    backgrounds = np.empty((len(chosen), photos.cache.side, photos.cache.side, 3), np.uint8)

    def paint(number: int) -> None:
        index = chosen[number]
        photo = np.asarray(photos.cache.photos[photos.cache.slots[rows[index]]])
        leaf = np.zeros(photo.shape[:2], np.uint8) if bare[index] else _unpack(masks[index])
        hole = cv2.dilate(leaf, np.ones((7, 7), np.uint8))
        backgrounds[number] = cv2.inpaint(photo, hole, 3, cv2.INPAINT_TELEA)

    with ThreadPoolExecutor(usable_cores(), "backgrounds") as pool:
        for _ in pool.map(paint, range(len(chosen))):  # raises the errors of the threads
            pass
    return backgrounds


def _soft(leaf: Array) -> Array:
    """The mask at half the side, uint8, 255 on the leaf, with a soft edge."""
    side = leaf.shape[0] // 2
    small = cv2.resize(leaf.astype(np.float32), (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.GaussianBlur(small, (0, 0), SEAM) * 255 + 0.5).astype(np.uint8)
