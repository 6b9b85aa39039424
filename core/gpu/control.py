"""The control block: what a step needs from the host, copied to the device before each replay of a captured graph.

`SETTINGS` declares the fields. The host writes them by name (`Control`), a kernel reads them by name (`make_reader`).
The settings are followed by the batch's labels, indices, augmentation parameters and targets.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final

import numpy as np

from core.gpu.compilation.cuda import device_function, types, u64
from core.gpu.compilation.ptx import load1, load_float
from core.ops.contract import Array
from core.ops.photo import AUGMENTATION_SIZE

IMAGES: Final = np.dtype([("address", np.uint64), ("height", np.int32), ("width", np.int32)])
"""A set of images of one size on the device."""

SETTINGS: Final = np.dtype(
    [
        ("photos", np.int32),  # real photos of the batch; the others are not counted
        ("step", np.int32), ("seed", np.uint32), ("photo0", np.int32),  # what random bits are drawn from
        ("rate", np.float32), ("root", np.float32), ("shrink", np.float32), ("average", np.float32),  # `Scalars`
        ("factor", np.float32),  # of the gradient: 1 over the parts of an accumulated step
        ("share", np.float32),  # of the batch in the loss
        # for synchronized batch norm: photos of all ranks over their number; 0 where none of them are this rank's
        ("rank_photos", np.float32), ("counted", np.float32),
        ("spare", np.int32, 4),  # unused, up to 64 bytes
        ("source", IMAGES), ("masks", IMAGES), ("backgrounds", IMAGES),
        ("spare2", np.int32, 4),  # unused, up to 128 bytes: the labels begin there
    ]
)  # fmt: skip
"""The fields in memory order. See `core.optim.optimizer.Scalars`, `core.ops.photo`."""

BACKGROUNDS: Final = ("masks", "backgrounds")
"""The fields with the addresses of backgrounds."""


def offset(name: str) -> int:
    """Byte offset of a field of the block."""
    return int(SETTINGS.fields[name][1])  # type: ignore[index]


def make_reader(name: str) -> Any:
    """Device function: a field of 4 bytes of the control block at `control`."""
    at, kind = offset(name), SETTINGS[name]
    load, convert = load_float if kind == np.float32 else load1, getattr(types, kind.name)

    @device_function
    def read(control: Any) -> Any:
        return convert(load(u64(control + u64(at))))

    return read


read_photos: Final = make_reader("photos")
"""``read_photos(control)``: the batch's real photos."""


class Offsets(NamedTuple):
    """Byte offsets of the arrays behind the settings, and the size of the block."""

    labels: int
    indices: int
    augmentation: int
    targets: int
    end: int


def find_offsets(batch: int, target_size: int = 0) -> Offsets:
    """Offsets for a batch; `target_size` is the number of float32 targets per photo."""
    step = -(-4 * batch // 64) * 64
    labels = SETTINGS.itemsize
    augmentation = labels + 2 * step
    targets = augmentation + 4 * AUGMENTATION_SIZE * batch
    return Offsets(labels, labels + step, augmentation, targets, targets + 4 * target_size * batch)


@final
class Control:
    """Views into one block of host bytes: settings, labels, index, augmentation parameters and targets of a batch."""

    def __init__(self, raw: Array, batch: int, target_size: int = 0) -> None:
        at = find_offsets(batch, target_size)
        self.settings = raw[: SETTINGS.itemsize].view(SETTINGS)
        self.settings["share"] = 1
        self.labels = raw[at.labels : at.labels + 4 * batch].view(np.int32)
        self.index = raw[at.indices : at.indices + 4 * batch].view(np.int32)
        self.augmentation = raw[at.augmentation : at.targets].view(np.float32).reshape(batch, AUGMENTATION_SIZE)
        self.targets = raw[at.targets : at.end].view(np.float32).reshape(batch, target_size)


def make_block(batch: int, target_size: int = 0, **settings: float) -> Array:
    """The bytes of a block with these settings; everything else is zero."""
    raw = np.zeros(find_offsets(batch, target_size).end, np.uint8)
    fields: Any = Control(raw, batch, target_size).settings
    for name, value in settings.items():
        fields[name] = value
    return raw
