"""What a step needs to know from the host, as one block of bytes copied in before each replay."""

from __future__ import annotations

from typing import Final, final

import numpy as np

from core.ops.contract import Array
from core.ops.photo import AUGMENTATION_SIZE

SETTINGS: Final = np.dtype(
    [
        ("photos", np.int32), ("step", np.int32), ("seed", np.uint32), ("photo0", np.int32),
        ("rate", np.float32), ("root", np.float32), ("shrink", np.float32), ("average", np.float32),
        ("factor", np.float32), ("share", np.float32), ("spare", np.int32, 6),
        ("source", np.uint64), ("source_height", np.int32), ("source_width", np.int32),
        ("masks", np.uint64), ("mask_height", np.int32), ("mask_width", np.int32),
        ("grounds", np.uint64), ("ground_height", np.int32), ("ground_width", np.int32), ("spare2", np.int32, 4),
    ]
)  # fmt: skip
"""The kernels read by byte offset: photos 0, step 4, seed 8, photo0 12, rate 16 ... factor 32, share 36;
source 64, masks 80, grounds 96."""

SOURCE: Final = 64
"""From here on three times: address, height and width of the photos, the masks and the grounds."""

GROUNDS: Final = ("masks", "mask_height", "mask_width", "grounds", "ground_height", "ground_width")
"""The settings that say where masks and grounds lie."""


@final
class Control:
    """Views into one block of host bytes: settings, labels, index, rows and targets of a batch."""

    def __init__(self, raw: Array, batch: int, taught: int = 0) -> None:
        self.labels_at, self.index_at, self.rows_at, self.targets_at, self.size = places(batch, taught)
        self.settings = raw[: SETTINGS.itemsize].view(SETTINGS)
        self.settings["share"] = 1
        self.labels = raw[self.labels_at : self.labels_at + 4 * batch].view(np.int32)
        self.index = raw[self.index_at : self.index_at + 4 * batch].view(np.int32)
        self.rows = raw[self.rows_at : self.targets_at].view(np.float32).reshape(batch, AUGMENTATION_SIZE)
        self.targets = raw[self.targets_at : self.size].view(np.float32).reshape(batch, taught)


def places(batch: int, taught: int = 0) -> tuple[int, int, int, int, int]:
    """Byte offsets of labels, index, rows and targets (`taught` floats a photo), and the size of it all."""
    step = -(-4 * batch // 64) * 64
    start = SETTINGS.itemsize
    rows = start + 2 * step
    targets = rows + 4 * AUGMENTATION_SIZE * batch
    return start, start + step, rows, targets, targets + 4 * taught * batch
