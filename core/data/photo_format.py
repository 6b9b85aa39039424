"""Formats of photo files: extensions, headers, and when a photo was taken (EXIF).

Importing this module does not import OpenCV.
"""

from __future__ import annotations

import calendar
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from core.ops.contract import Array

EXTENSIONS: Final = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Extensions of supported formats, in lower case."""

UNREADABLE: Final = {
    ".heic": "HEIC", ".heif": "HEIF", ".avif": "AVIF", ".cr2": "camera raw", ".cr3": "camera raw",
    ".nef": "camera raw", ".arw": "camera raw", ".dng": "camera raw", ".orf": "camera raw", ".rw2": "camera raw",
    ".raf": "camera raw", ".pef": "camera raw", ".jxl": "JPEG XL", ".jp2": "JPEG 2000",
}  # fmt: skip
"""Extensions of formats that are not supported, and the names of the formats."""

NAMED: Final = (*EXTENSIONS, *UNREADABLE)
"""Extensions that diagnosis looks for: a photo in an unsupported format is reported with the reason."""

_TIFF: Final = {
    254: ("camera raw, NewSubfileType", (0, 2)), 277: ("SamplesPerPixel", range(5)), 339: ("SampleFormat", (1, 4)),
    258: ("BitsPerSample", range(1, 17)), 262: ("PhotometricInterpretation", (0, 1, 2, 3, 5, 6)),
    259: ("Compression", (1, 2, 3, 4, 5, 7, 8, 32773, 32946)),
}  # fmt: skip
"""TIFF tags, and the values that OpenCV decodes: with others it fails, or returns a thumbnail or a blank image."""
KINDS: Final = ("JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF", "")
"""Kinds of headers whose photos are decoded; "" is a file that ends within its header."""
_JPEG_SIZE: Final = frozenset((*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)))
"""JPEG start-of-frame markers, which contain the size."""


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
    head = bytes(view[:12])
    try:
        if head[4:8] == b"ftyp":
            return Header({b"avif": "AVIF", b"avis": "AVIF", b"crx ": "camera raw"}.get(head[8:], "HEIC"), 0, 0)
        return next((read(view) for mark, read in _READERS.items() if head.startswith(mark)), None)
    except (struct.error, IndexError):  # it begins like a photo and then ends
        return Header("", 0, 0, cut=True)


def _jpeg(view: memoryview) -> Header | None:
    """Traverse the segments up to the frame's size, then search the scan for the end marker."""
    width = height = bits = 0
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
            bits, height, width = struct.unpack_from(">BHH", view, at + 4)
        if marker == 0xDA:
            # within a scan 0xFF is always followed by 0 or a restart marker, so this is the true end
            cut = bytes(view[at:]).rfind(b"\xff\xd9") < 0
            kind = "JPEG" if bits == 8 else f"JPEG ({bits} bits)"
            return Header(kind, width, height, False, cut) if width and height else None
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
    kind = bytes(view[8:16])
    if kind == b"WEBPVP8 ":
        width, height = struct.unpack_from("<HH", view, 26)
        return Header("WebP", width & 0x3FFF, height & 0x3FFF, cut=cut)
    if kind == b"WEBPVP8L":
        (bits,) = struct.unpack_from("<I", view, 21)
        return Header("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1), cut)
    if kind == b"WEBPVP8X":
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
    other = [f" ({name} {found[tag]})" for tag, (name, known) in _TIFF.items() if found.get(tag, known[0]) not in known]
    alpha = found.get(277, 3) in (2, 4) and found.get(262) in (1, 2) and found.get(338) != 0  # as of near infrared
    return Header("".join(["TIFF", *other[:1]]), found[256], found[257], alpha) if {256, 257} <= found.keys() else None


_READERS: Final[Mapping[bytes, Callable[[memoryview], Header | None]]] = {
    b"\xff\xd8": _jpeg, b"\x89PNG\r\n\x1a\n": _png, b"RIFF": _webp, b"BM": _bmp, b"II*\0": _tiff, b"MM\0*": _tiff,
    **dict.fromkeys((b"GIF87a", b"GIF89a"), lambda view: Header("GIF", *struct.unpack_from("<HH", view, 6))),
    **dict.fromkeys((b"II+\0", b"MM\0+"), lambda _: Header("BigTIFF", 0, 0)),
}  # fmt: skip
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
    """Each tag of a TIFF directory with its value, its first of several short integers, or else the offset of them."""
    (count,) = struct.unpack_from(order + "H", data, directory)
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, kind, values, value = struct.unpack_from(order + "HHII", data, entry)
        if kind == 3:
            (value,) = struct.unpack_from(order + "H", data, value if values > 2 else entry + 8)
        yield tag, value
