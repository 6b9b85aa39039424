"""How photo files end: the formats that are read, and those that are known and not read. Light: it brings no OpenCV."""

from __future__ import annotations

from typing import Final

EXTENSIONS: Final = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Endings of photos that are read, in small letters."""

UNREADABLE: Final = {
    ".heic": "HEIC", ".heif": "HEIF", ".avif": "AVIF", ".cr2": "camera raw", ".cr3": "camera raw",
    ".nef": "camera raw", ".arw": "camera raw", ".dng": "camera raw", ".orf": "camera raw", ".rw2": "camera raw",
}  # fmt: skip
"""Endings of photo formats that are not read, and what they are called."""

NAMED: Final = (*EXTENSIONS, *UNREADABLE)
"""Endings looked for where photos are diagnosed: one of a format that is not read gets an answer too, which says so."""
