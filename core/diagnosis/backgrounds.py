"""Leaf masks and backgrounds of the training photos, for training with replaced backgrounds; computed once and cached.

A background is a training photo whose leaf is inpainted from its surroundings, as in
`core.diagnosis.background_dependence`. The masks are deterministic (`core.diagnosis.leaf_mask`), so every run gets the
same backgrounds.
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
from core.data.background_replacement import BackgroundReplacement
from core.data.dataset import TRAIN, Cancelled, IsCancelled
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


def prepare_replacement(
    photos: PhotoSet, chance: float, report: ReportStage, cancelled: IsCancelled
) -> BackgroundReplacement:
    """Masks of the training photos and grounds made of them. Masks are kept beside the photo cache, by content.

    Raises DataError where no leaf can be cut out, Cancelled, StorageError.
    """
    rows, classes = photos.rows(TRAIN), photos.dataset.classes
    side, found = photos.cache.side, _leaves(photos, rows, report, cancelled)
    share = np.array([_unpack(leaf).mean() for leaf in found])
    bare = np.array([name.lower() in NO_LEAF_NAMES for name in classes])[photos.dataset.labels[rows]]
    can = ~bare & (share >= AREA[0]) & (share <= AREA[1])
    grounds = _grounds(photos, rows, np.flatnonzero(bare | (can & (share <= PAINTED))), found, bare)
    if not can.any() or not len(grounds):
        raise DataError("No leaf can be cut out of these photos: --augment-background needs photos of leaves.")
    slots, count = photos.cache.slots[rows], len(photos.cache.photos)
    masks = np.zeros((count, side // 2, side // 2), np.uint8)
    for slot, leaf in zip(slots, found, strict=True):
        masks[slot] = _soft(_unpack(leaf))
    slot_can = np.zeros(count, np.bool_)
    slot_can[slots] = can
    return BackgroundReplacement(Backgrounds(masks, grounds), slot_can, chance)


def count_swap(training: int, photos: int, side: int) -> tuple[int, int]:
    """Bytes of masks and grounds, and of what is held beside them while they are made.

    training, photos: how many of that split, and in all; side: of a decoded photo.
    """
    kept = photos * (side // 2) ** 2 + min(training, GROUNDS) * 3 * side**2
    return kept, training * side * ((side + 7) // 8)


def _leaves(photos: PhotoSet, rows: Array, report: ReportStage, cancelled: IsCancelled) -> list[Array]:
    """Leaf masks of these rows, each as bits ``(side, side / 8)``: read from the file, and found where it has none."""
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
    return [known[name] for name in names]


def _unpack(leaf: Array) -> Array:
    """A mask as uint8 ``(side, side)``, 1 on the leaf."""
    return np.unpackbits(leaf, axis=-1, count=len(leaf))


def _grounds(photos: PhotoSet, rows: Array, fit: Array, found: list[Array], bare: Array) -> Array:
    """Photos (places in `rows`) of all classes in turn, without their leaf: uint8 ``(grounds, side, side, 3)``.

    bare: bool ``(len(rows),)``, photos without a leaf, which stay as they are.
    """
    labels = photos.dataset.labels[rows[fit]]
    turn = np.empty(len(fit), np.int64)  # how many of its class come before it
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        turn[mine] = np.arange(len(mine))

    chosen = fit[np.argsort(turn, kind="stable")][:GROUNDS]
    grounds = np.empty((len(chosen), photos.cache.side, photos.cache.side, 3), np.uint8)

    def paint(number: int) -> None:
        at = chosen[number]
        photo = np.asarray(photos.cache.photos[photos.cache.slots[rows[at]]])
        leaf = np.zeros(photo.shape[:2], np.uint8) if bare[at] else _unpack(found[at])
        hole = cv2.dilate(leaf, np.ones((7, 7), np.uint8))
        grounds[number] = cv2.inpaint(photo, hole, 3, cv2.INPAINT_TELEA)

    with ThreadPoolExecutor(usable_cores(), "grounds") as pool:
        for _ in pool.map(paint, range(len(chosen))):  # which raises what went wrong
            pass
    return grounds


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
