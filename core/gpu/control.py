"""The control block: what a step needs from the host, copied to the device before each replay of a captured graph.

`Settings` declares the fields. The host writes them by name (`Control`), a kernel reads them by name (`make_reader`).
The settings are followed by the batch's labels, indices, augmentation parameters and targets.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

import numpy as np

from core.gpu.compilation.cuda import device_function, types, u64
from core.gpu.compilation.ptx import load1, load_float
from core.ops.contract import Array
from core.ops.photo import AUGMENTATION_SIZE


class Images(ctypes.Structure):
    """A set of images of one size on the device."""

    _fields_ = (("address", ctypes.c_uint64), ("height", ctypes.c_int32), ("width", ctypes.c_int32))


class Settings(ctypes.Structure):
    """The fields in memory order. See `core.optim.optimizer.Scalars`, `core.ops.photo`."""

    _fields_ = (
        ("photos", ctypes.c_int32),  # real photos of the batch; the others are not counted
        # what random bits are drawn from
        ("step", ctypes.c_int32), ("seed", ctypes.c_uint32), ("photo0", ctypes.c_int32),
        *((name, ctypes.c_float) for name in ("rate", "root", "shrink", "average")),  # `Scalars`
        ("factor", ctypes.c_float),  # of the gradient: 1 over the parts of an accumulated step
        ("share", ctypes.c_float),  # of the batch in the loss
        # for synchronized batch norm: photos of all ranks over their number; 0 where none of them are this rank's
        ("rank_photos", ctypes.c_float), ("counted", ctypes.c_float),
        ("slot", ctypes.c_int32),  # where the step's result goes: that of the step before may not be read yet
        ("spare", ctypes.c_int32 * 3),  # unused, up to 64 bytes
        ("source", Images), ("masks", Images), ("backgrounds", Images),
        ("spare2", ctypes.c_int32 * 4),  # unused, up to 128 bytes: the labels begin there
    )  # fmt: skip


BACKGROUNDS: Final = ("masks", "backgrounds")
"""The fields with the addresses of backgrounds."""


def offset(name: str) -> int:
    """Byte offset of a field of the block."""
    return int(getattr(Settings, name).offset)


TYPES: Final[dict[str, Any]] = {field[0]: field[1] for field in Settings._fields_}
LOADS: Final[dict[Any, Any]] = {
    ctypes.c_int32: (load1, types.int32), ctypes.c_uint32: (load1, types.uint32),
    ctypes.c_float: (load_float, types.float32),
}  # fmt: skip


def make_reader(name: str) -> Any:
    """Device function: a field of 4 bytes of the control block at `control`."""
    at, (load, convert) = offset(name), LOADS[TYPES[name]]

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
    labels = ctypes.sizeof(Settings)
    augmentation = labels + 2 * step
    targets = augmentation + 4 * AUGMENTATION_SIZE * batch
    return Offsets(labels, labels + step, augmentation, targets, targets + 4 * target_size * batch)


class Control:
    """Views into one block of host bytes: settings, labels, index, augmentation parameters and targets of a batch."""

    def __init__(self, raw: Array, batch: int, target_size: int = 0) -> None:
        at = find_offsets(batch, target_size)
        self._settings = raw[: at.labels]
        self.labels = raw[at.labels : at.labels + 4 * batch].view(np.int32)
        self.index = raw[at.indices : at.indices + 4 * batch].view(np.int32)
        self.augmentation = raw[at.augmentation : at.targets].view(np.float32).reshape(batch, AUGMENTATION_SIZE)
        self.targets = raw[at.targets : at.end].view(np.float32).reshape(batch, target_size)

    def copy_settings(self, settings: Settings) -> None:
        self._settings[:] = np.frombuffer(bytes(settings), np.uint8)


def make_block(batch: int, target_size: int = 0, **settings: float) -> Array:
    """The bytes of a block with these settings; everything else is zero."""
    raw = np.zeros(find_offsets(batch, target_size).end, np.uint8)
    Control(raw, batch, target_size).copy_settings(Settings(**{"share": 1, **settings}))
    return raw
