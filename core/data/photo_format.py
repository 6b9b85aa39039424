"""Formats of photo files: extensions, headers, and when a photo was taken (EXIF).

Importing this module does not import OpenCV.
"""

from __future__ import annotations

import calendar
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from core.ops.contract import Array

EXTENSIONS: Final = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Extensions of supported formats, in lower case."""

UNREADABLE: Final = {
    ".heic": "HEIC", ".heif": "HEIF", ".avif": "AVIF", ".cr2": "camera raw", ".cr3": "camera raw",
    ".nef": "camera raw", ".arw": "camera raw", ".dng": "camera raw", ".orf": "camera raw", ".rw2": "camera raw",
}  # fmt: skip
"""Extensions of formats that are not supported, and the names of the formats."""

NAMED: Final = (*EXTENSIONS, *UNREADABLE)
"""Extensions that diagnosis looks for: a photo in an unsupported format is reported with the reason."""

_JPEG_SIZE: Final = frozenset((*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)))
"""JPEG start-of-frame markers, which contain the size."""


@final
@dataclass(frozen=True, slots=True)
class Header:
    """A photo file's header. width, height: before rotation; alpha: may be transparent; cut: its end is missing."""

    kind: str
    width: int
    height: int
    alpha: bool = False
    cut: bool = False


def read_header(data: Array) -> Header | None:
    """Read the header of an encoded photo; None if it is not in a known format."""
    view = data.data
    head = bytes(view[:64])
    try:
        if head.startswith(b"\xff\xd8"):
            return _jpeg(view)
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png(view)
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp(view)
        if head[:6] in (b"GIF87a", b"GIF89a"):
            width, height = struct.unpack_from("<HH", head, 6)
            return Header("GIF", width, height, alpha=False)
        if head[:2] == b"BM":
            return _bmp(view)
        if head[:4] in (b"II*\0", b"MM\0*"):
            return _tiff(view)
        if head[4:8] == b"ftyp":
            return Header("AVIF" if head[8:12] in (b"avif", b"avis") else "HEIC", 0, 0)
    except (struct.error, IndexError):  # it begins like a photo and then ends
        return Header("", 0, 0, cut=True)
    return None


def _jpeg(view: memoryview) -> Header | None:
    """Traverse the segments up to the frame's size, then search the scan for the end marker."""
    width = height = 0
    at = 2
    while True:
        if view[at] != 0xFF:
            return None
        marker = view[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker == 0xD9:
            return None
        (length,) = struct.unpack_from(">H", view, at + 2)
        if marker in _JPEG_SIZE:
            height, width = struct.unpack_from(">HH", view, at + 5)
        if marker == 0xDA:
            # within a scan 0xFF is always followed by 0 or a restart marker, so this is the true end
            cut = bytes(view[at:]).rfind(b"\xff\xd9") < 0
            return Header("JPEG", width, height, cut=cut) if width and height else None
        at += 2 + length


def _png(view: memoryview) -> Header | None:
    if bytes(view[12:16]) != b"IHDR":
        return None
    width, height, _, colour = struct.unpack_from(">IIBB", view, 16)
    alpha = colour in (4, 6)
    at = 8
    while at + 12 <= len(view):
        (length,) = struct.unpack_from(">I", view, at)
        name = bytes(view[at + 4 : at + 8])
        alpha |= name == b"tRNS"
        if name == b"IEND":
            return Header("PNG", width, height, alpha, cut=length > 0)  # libpng would allocate any length
        at += 12 + length
    return Header("PNG", width, height, alpha, cut=True)


def _webp(view: memoryview) -> Header | None:
    (size,) = struct.unpack_from("<I", view, 4)
    cut = size + 8 > len(view)
    kind = bytes(view[12:16])
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", view, 26)
        return Header("WebP", width & 0x3FFF, height & 0x3FFF, cut=cut)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", view, 21)
        return Header("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1), cut)
    if kind == b"VP8X":
        width = int.from_bytes(view[24:27], "little") + 1
        height = int.from_bytes(view[27:30], "little") + 1
        return Header("WebP", width, height, bool(view[20] & 0x10), cut)
    return None


def _bmp(view: memoryview) -> Header | None:
    (size,) = struct.unpack_from("<I", view, 2)
    if view[14] not in (40, 52, 56, 64, 108, 124):  # else any text that begins with BM
        return None
    width, height = struct.unpack_from("<ii", view, 18)
    return Header("BMP", abs(width), abs(height), cut=size > len(view))


def _tiff(view: memoryview) -> Header | None:
    """Size from the first directory (tags 256 and 257); the file is cut if the directory is beyond its end."""
    order = "<" if view[0] == 0x49 else ">"
    (first,) = struct.unpack_from(order + "I", view, 4)
    if first + 2 > len(view):
        return Header("TIFF", 0, 0, cut=True)
    found = dict(_tags(view, order, first))
    alpha = found.get(277, 3) in (2, 4) and found.get(262) in (1, 2)
    return Header("TIFF", found[256], found[257], alpha) if 256 in found and 257 in found else None


HEAD: Final = 1 << 17
"""Bytes searched for EXIF metadata, which comes first in the file and has at most 64 kB."""
_MARK: Final = b"Exif\0\0"
_DETAILS: Final = 0x8769
_TAKEN: Final = 0x9003
"""Tags of the Exif directory and of DateTimeOriginal in it. DateTime is not used: programs change it."""


def taken_at(data: Array) -> int:
    """Seconds since 1970 by the camera's clock; 0 if the encoded photo (uint8) has no time."""
    head = bytes(data[:HEAD])
    start = head.find(_MARK)
    if start < 0:
        return 0
    notes = head[start + len(_MARK) :]
    order = {b"II": "<", b"MM": ">"}.get(notes[:2])
    if order is None:
        return 0
    try:
        (first,) = struct.unpack_from(order + "I", notes, 4)
        details = next((value for tag, value in _tags(notes, order, first) if tag == _DETAILS), 0)
        found = _tags(notes, order, details) if details else ()
        at = next((value for tag, value in found if tag == _TAKEN), 0)
        text = notes[at : at + 19].decode("ascii") if at else ""
        return max(calendar.timegm(time.strptime(text, "%Y:%m:%d %H:%M:%S")), 0) if text else 0
    except (struct.error, ValueError, OverflowError):  # truncated metadata, or a clock that was never set
        return 0


def _tags(data: bytes | memoryview, order: str, directory: int) -> Iterator[tuple[int, int]]:
    """Each tag of a TIFF directory with its value, or the offset of its value."""
    (count,) = struct.unpack_from(order + "H", data, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        (value,) = struct.unpack_from(order + ("H" if kind == 3 else "I"), data, entry + 8)
        yield tag, value
