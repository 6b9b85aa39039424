"""Decodes one photo file to RGB: rotated by its EXIF orientation, cropped to its centred square.

Do not call this on untrusted files: `core.data.photo_reader` runs it in a process with limits on memory and time.

The network always sees the largest centred square of the photo, in training and in diagnosis. So the aspect ratio of a
photo cannot reveal its class, and nothing is distorted.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

import cv2
import numpy as np

from core.data.photo_format import KINDS, Header, read_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from core.ops.contract import Array

SQUARE: Final = "square"
WHOLE: Final = "whole"
MARGINS: Final = "margins"
"""Parts of a photo that can be asked for, see `PARTS`."""
MOST_PIXELS: Final = 250_000_000
"""Larger photos are rejected by their header. Phones have up to 200 megapixels; JPEGs are scaled while decoding."""
MOST_DECODED: Final = 100_000_000
"""Most pixels decoded at once: 300 MB of RGB, in addition to the file."""
STRIP: Final = 1 << 18
"""Pixels composited on white at a time: a floating-point copy of a whole photo would take four times its memory."""
DAMAGED: Final = "The file is damaged and cannot be decoded."
TOO_MUCH_MEMORY: Final = "Decoding the photo takes too much memory. Save it as JPEG, or make it smaller."

_RGB: Final = int(cv2.IMREAD_COLOR_RGB)
_REDUCED: Final = (
    (8, _RGB | cv2.IMREAD_REDUCED_GRAYSCALE_8),
    (4, _RGB | cv2.IMREAD_REDUCED_GRAYSCALE_4),
    (2, _RGB | cv2.IMREAD_REDUCED_GRAYSCALE_2),
)
"""Scales while decoding; OpenCV's names for "colour, reduced" mean BGR."""
_TO_RGB: Final = {1: cv2.COLOR_GRAY2RGB, 3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGB}
"""By the number of channels of a photo decoded unchanged."""

# errors are reported as PhotoError, not by OpenCV on the terminal
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


class PhotoError(Exception):
    """A file cannot be used as a photo; the message is a short sentence."""


def read_bytes(path: str) -> Array:
    """A file's bytes, uint8. Raises PhotoError (`open` opens any name on any system; cv2.imread does not)."""
    try:
        name = long_path(path)
        kind = os.stat(name).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            raise PhotoError("This is a pipe or a device, not a file.")  # reading one could block
        with open(name, "rb", buffering=0) as file:
            data: Array = np.frombuffer(file.read(), np.uint8)
    except FileNotFoundError:
        raise PhotoError("The file does not exist.") from None
    except IsADirectoryError:
        raise PhotoError("This is a folder, not a file.") from None
    except PermissionError:
        raise PhotoError("No permission to read the file.") from None
    except (OSError, ValueError) as error:
        raise PhotoError(f"The file cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    if not len(data):
        raise PhotoError("The file is empty.")
    return data


def decode(data: Array, side: int = 0, part: str = SQUARE, header: Header | None = None, least: int = 0) -> Array:
    """Decode a part (one of `PARTS`) of a photo, uint8 RGB, scaled to `side`; the whole photo if `side` is 0.

    header: the result of `check`, if it was called already; least: side from which a photo is scaled, not kept as it
    is (`_choose_scale`). Raises PhotoError.
    """
    header = header or check(data)
    side, factor, flags = _choose_scale(header, side, least, part)
    flags = int(cv2.IMREAD_UNCHANGED) if header.alpha else flags
    if header.width * header.height > MOST_DECODED * factor * factor:
        raise _too_large(header, MOST_DECODED)
    try:
        photo = cv2.imdecode(data, flags)  # first frame, colours from grey and CMYK, EXIF rotation applied
        if photo is None or photo.size == 0:
            raise PhotoError(DAMAGED)
        scale = PARTS[part] if side else lambda whole, _: whole
        if flags == cv2.IMREAD_UNCHANGED:
            return _to_rgb(photo, lambda part: scale(part, side))
        return np.asarray(scale(photo, side), np.uint8)
    except MemoryError:
        raise PhotoError(TOO_MUCH_MEMORY) from None
    except cv2.error as error:
        raise PhotoError(TOO_MUCH_MEMORY if error.code == cv2.Error.StsNoMem else DAMAGED) from None


def square(photo: Array, side: int) -> Array:
    """The largest centred square of a photo, scaled to ``(side, side, ...)``; area averaging when it shrinks."""
    height, width = photo.shape[:2]
    short = min(height, width)
    y, x = (height - short) // 2, (width - short) // 2
    part = photo[y : y + short, x : x + short]
    if short == side:
        return np.ascontiguousarray(part)
    how = cv2.INTER_AREA if short > side else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(part, (side, side), interpolation=how), np.uint8)


def halve(photo: Array, side: int) -> Array:
    """The whole photo, halved while its shorter side exceeds three times `side`: scaling at once is slower."""
    while min(photo.shape[:2]) > 3 * side:
        height, width = (n // 2 for n in photo.shape[:2])
        photo = cv2.resize(photo[: 2 * height, : 2 * width], (width, height), interpolation=cv2.INTER_AREA)
    return photo


def shrink(photo: Array, side: int) -> Array:
    """The whole photo with its longer side at most `side`."""
    height, width = photo.shape[:2]
    scale = side / max(height, width)
    if scale >= 1:
        return photo
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    return np.asarray(cv2.resize(photo, size, interpolation=cv2.INTER_AREA), np.uint8)


def add_margins(photo: Array, side: int) -> Array:
    """The whole photo, scaled so that its centred square is `square(photo, side)`, pixel for pixel; of a panorama only
    as much as two more squares."""
    height, width = photo.shape[:2]
    short, axis = min(height, width), int(width > height)
    start = (max(height, width) - short) // 2
    room = min(start, short)
    margin = round(room * side / short)
    middle = square(photo, side)
    if not margin:
        return middle
    size = (margin, side) if axis else (side, margin)
    _, first, _, last, _ = np.split(photo, (start - room, start, start + short, start + short + room), axis)
    ends = [cv2.resize(np.ascontiguousarray(end), size, interpolation=cv2.INTER_AREA) for end in (first, last)]
    return np.concatenate((ends[0], middle, ends[1]), axis)


PARTS: Final = {SQUARE: square, WHOLE: shrink, MARGINS: add_margins}
"""The part of a photo to decode, and how it is scaled to a side: the centred square; the whole photo, its longer side
at most that; the whole photo, its centred square of that side."""


def place_in_square(part: Array, box: tuple[float, float, float, float], side: int) -> Array:
    """Paste a map of the part `box` into the photo's centred square: float32 ``(side, side)``, 0 outside the box."""
    y0, x0, y1, x1 = (round(side * v) for v in box)
    y1, x1 = max(y1, y0 + 1), max(x1, x0 + 1)
    small = cv2.resize(np.asarray(part, np.float32), (x1 - x0, y1 - y0), interpolation=cv2.INTER_AREA)
    whole = np.zeros((side, side), np.float32)
    inside = small[max(-y0, 0) : max(side - y0, 0), max(-x0, 0) : max(side - x0, 0)]
    y, x = max(y0, 0), max(x0, 0)
    whole[y : y + inside.shape[0], x : x + inside.shape[1]] = inside
    return whole


def encode_jpeg(rgb: Array, quality: int) -> bytes:
    """An RGB photo uint8 ``(H, W, 3)`` as the bytes of a JPEG file."""
    return bytes(cv2.imencode(".jpg", np.ascontiguousarray(rgb[..., ::-1]), (cv2.IMWRITE_JPEG_QUALITY, quality))[1])


def long_path(path: str) -> str:
    """The path in the form that Windows needs beyond 260 characters; unchanged elsewhere."""
    if os.name != "nt" or len(path) < 240 or path.startswith("\\\\?\\"):
        return path
    full = os.path.abspath(path)
    return "\\\\?\\UNC" + full[1:] if full.startswith("\\\\") else "\\\\?\\" + full


def check(data: Array) -> Header:
    """Read the header of a photo and check that it can be decoded. Raises PhotoError."""
    header = read_header(data)
    if header is None:
        raise PhotoError("The file is not a photo that can be read (JPEG, PNG, WebP, TIFF, BMP or GIF).")
    if header.kind not in KINDS:
        raise PhotoError(f"{header.kind} files are not supported. Save the photo as JPEG or PNG.")
    if header.width * header.height > MOST_PIXELS:
        raise _too_large(header, MOST_PIXELS)
    if header.cut:
        raise PhotoError("The file is cut off; copy it again from the camera.")
    return header


def _to_rgb(photo: Array, scale: Callable[[Array], Array]) -> Array:
    """Convert what OpenCV decoded unchanged (grey, BGR or BGRA; 8 or 16 bits) to RGB, when few pixels are left."""
    channels = 1 if photo.ndim == 2 else photo.shape[2]
    if photo.dtype not in (np.uint8, np.uint16) or channels not in _TO_RGB:
        raise PhotoError(DAMAGED)
    if channels == 4:
        _composite_on_white(photo)
    if photo.dtype == np.uint16:
        photo = (photo >> 8).astype(np.uint8)
    return np.asarray(cv2.cvtColor(scale(photo), _TO_RGB[channels]), np.uint8)


def _too_large(header: Header, most: int) -> PhotoError:
    megapixels = -(-header.width * header.height // 10**6)  # rounded up, above the limit
    return PhotoError(f"The photo is too large ({megapixels} megapixels; at most {most // 10**6}).")


def _choose_scale(header: Header, side: int, least: int, part: str) -> tuple[int, int, int]:
    """The side at which a photo is decoded, and factor and flag of decoding.

    JPEG scales by 2, 4 or 8 while it decodes, by averaging areas: a 12-megapixel photo in a third of the time. Where
    that leaves less than `least`, nothing else is scaled; otherwise it leaves at least twice `side` (WHOLE: `side`).
    """
    short, longer = sorted((header.width, header.height))
    reduced = _REDUCED if header.kind == "JPEG" and side else ()
    for factor, flag in ((1, _RGB), *reduced[::-1]):
        if 0 < (own := -(-short // factor)) < least:
            return own, factor, flag
    enough = (2 * longer if part == WHOLE else short) // (2 * side or 1)
    return side, *next((row for row in reduced if row[0] <= enough), (1, _RGB))


def _composite_on_white(photo: Array) -> None:
    """Composite transparent pixels on white, in place: their colour is arbitrary."""
    top = 65535 if photo.dtype == np.uint16 else 255
    if photo[..., 3].min() == top:
        return
    rows = max(1, STRIP // photo.shape[1])
    for first in range(0, len(photo), rows):
        part = photo[first : first + rows]
        alpha = part[..., 3:].astype(np.float32) / top
        part[..., :3] = (part[..., :3] * alpha + top * (1 - alpha) + 0.5).astype(photo.dtype)
