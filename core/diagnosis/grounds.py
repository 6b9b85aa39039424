"""Leaf masks and grounds of the training photos, for training with other backgrounds; found once and kept.

A ground is a training photo whose leaf was painted over from around it, as `core.diagnosis.background` does for the
test: the same for every run, since masks are (`core.diagnosis.leaf_mask`).
"""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from core.cores import usable_cores
from core.data.dataset import TRAIN, Cancelled, IsCancelled
from core.data.ground import GroundSwap
from core.data.preparation import PhotoSet, ReportStage
from core.diagnosis.leaf_process import choose_processes, packing
from core.diagnosis.verdict import NO_LEAF_NAMES
from core.errors import DataError
from core.ops.contract import Array
from core.ops.photo import Backgrounds
from core.storage import write_file

GROUNDS: Final = 512
"""Photos kept as grounds, as many of each class as there are: 77 MB at 224 pixels."""
AREA: Final = (0.06, 0.9)
"""Shares of the photo that a leaf takes: smaller ones are specks, larger ones leave no ground."""
PAINTED: Final = 0.75
"""Largest leaf that is painted over."""
SEAM: Final = 0.7
"""Gaussian deviation of a mask's edge, in its own pixels, which are two of the photo's."""
VERSION: Final = 1
"""Of the masks; another one after a change of `segment_leaf`."""
REPORT_EVERY: Final = 64


def swap_for(photos: PhotoSet, chance: float, report: ReportStage, cancelled: IsCancelled) -> GroundSwap:
    """Masks of the training photos and grounds made of them. Masks are kept beside the photo cache, by content.

    Raises DataError where no leaf can be cut out, Cancelled, StorageError.
    """
    rows, classes = photos.rows(TRAIN), photos.dataset.classes
    found = _leaves(photos, rows, report, cancelled)
    share = found.mean(axis=(1, 2))
    bare = np.array([name.lower() in NO_LEAF_NAMES for name in classes])[photos.dataset.labels[rows]]
    can = ~bare & (share >= AREA[0]) & (share <= AREA[1])
    grounds = _grounds(photos, rows, np.flatnonzero(bare | (can & (share <= PAINTED))), found & ~bare[:, None, None])
    if not can.any() or not len(grounds):
        raise DataError("No leaf can be cut out of these photos: --augment-background needs photos of leaves.")
    slots, count, side = photos.cache.slots[rows], len(photos.cache.photos), photos.cache.side
    masks = np.zeros((count, side // 2, side // 2), np.uint8)
    masks[slots] = np.stack([_soft(leaf) for leaf in found])
    slot_can = np.zeros(count, np.bool_)
    slot_can[slots] = can
    return GroundSwap(Backgrounds(masks, grounds), slot_can, chance)


def _leaves(photos: PhotoSet, rows: Array, report: ReportStage, cancelled: IsCancelled) -> Array:
    """Leaf masks of these rows, bool ``(len(rows), side, side)``: read from the file, and found where it has none."""
    side = photos.cache.side
    path = Path(photos.cache.home) / f"{side}-leaves-{VERSION}.npz"
    known = _read(path)
    names = [photos.cache.content[row].tobytes() for row in rows]
    missing = [at for at, name in enumerate(names) if name not in known]

    def find(at: int) -> Array:
        if cancelled():
            raise Cancelled("Stopped before the training began; nothing was lost.")
        return pack(np.asarray(photos.cache.photos[photos.cache.slots[rows[at]]]))

    cores = usable_cores()
    with packing(choose_processes(len(missing), cores)) as pack, ThreadPoolExecutor(cores, "leaves") as pool:
        for done, (at, mask) in enumerate(zip(missing, pool.map(find, missing), strict=True), 1):
            known[names[at]] = mask
            if done % REPORT_EVERY == 0 or done == len(missing):
                report("leaves", done, len(missing))
    if missing:
        _write(path, known)
    return np.unpackbits(np.stack([known[name] for name in names]), axis=-1, count=side).astype(np.bool_)


def _grounds(photos: PhotoSet, rows: Array, fit: Array, found: Array) -> Array:
    """Photos (places in `rows`) of all classes in turn, without their leaf: uint8 ``(grounds, side, side, 3)``."""
    labels = photos.dataset.labels[rows[fit]]
    turn = np.empty(len(fit), np.int64)  # how many of its class come before it
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        turn[mine] = np.arange(len(mine))

    def paint(at: int) -> Array:
        photo = np.asarray(photos.cache.photos[photos.cache.slots[rows[at]]])
        hole = cv2.dilate(found[at].astype(np.uint8), np.ones((7, 7), np.uint8))
        return np.asarray(cv2.inpaint(photo, hole, 3, cv2.INPAINT_TELEA))

    chosen = fit[np.argsort(turn, kind="stable")][:GROUNDS]
    with ThreadPoolExecutor(usable_cores(), "grounds") as pool:
        return np.stack(list(pool.map(paint, chosen))) if len(chosen) else np.empty((0, 1, 1, 3), np.uint8)


def _soft(leaf: Array) -> Array:
    """A mask of half the side, 255 on the leaf, soft at its edge."""
    side = leaf.shape[0] // 2
    small = cv2.resize(leaf.astype(np.float32), (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.GaussianBlur(small, (0, 0), SEAM) * 255 + 0.5).astype(np.uint8)


def _write(path: Path, known: dict[bytes, Array]) -> None:
    buffer = io.BytesIO()
    content = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), -1)
    np.savez_compressed(buffer, content=content, leaves=np.stack(list(known.values())))
    write_file(path, buffer.getvalue())


def _read(path: Path) -> dict[bytes, Array]:
    """Packed masks by content; none where the file is missing or broken."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            return {row.tobytes(): mask for row, mask in zip(file["content"], file["leaves"], strict=True)}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return {}
