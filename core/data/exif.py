"""Reads when a photo was taken from its EXIF metadata."""

from __future__ import annotations

import calendar
import struct
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from core.ops.contract import Array

_HEAD: Final = 1 << 17
"""Bytes searched for EXIF metadata, which comes first in the file and has at most 64 kB."""
_MARK: Final = b"Exif\0\0"
_DETAILS: Final = 0x8769
_TAKEN: Final = 0x9003
"""Tags of the Exif directory and of DateTimeOriginal in it. DateTime is not used: programs change it."""


def taken_at(data: Array) -> int:
    """Seconds since 1970 by the camera's clock; 0 if the encoded photo (uint8) has no time."""
    head = bytes(data[:_HEAD])
    start = head.find(_MARK)
    if start < 0:
        return 0
    notes = head[start + len(_MARK) :]
    order = {b"II": "<", b"MM": ">"}.get(notes[:2])
    if order is None:
        return 0
    try:
        (first,) = struct.unpack_from(order + "I", notes, 4)
        details = _value(notes, order, first, _DETAILS)
        at = _value(notes, order, details, _TAKEN) if details else 0
        text = notes[at : at + 19].decode("ascii") if at else ""
        return max(calendar.timegm(time.strptime(text, "%Y:%m:%d %H:%M:%S")), 0) if text else 0
    except (struct.error, ValueError, OverflowError):  # truncated metadata, or a clock that was never set
        return 0


def _value(notes: bytes, order: str, directory: int, tag: int) -> int:
    """The 32-bit value (or offset) of a tag in a directory; 0 if it is missing."""
    (count,) = struct.unpack_from(order + "H", notes, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        if struct.unpack_from(order + "H", notes, entry)[0] == tag:
            return int(struct.unpack_from(order + "I", notes, entry + 8)[0])
    return 0
