"""File extensions of photos: supported formats, and known formats that are not supported.

Importing this module does not import OpenCV.
"""

from __future__ import annotations

from typing import Final

EXTENSIONS: Final = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
"""Extensions of supported formats, in lower case."""

UNREADABLE: Final = {
    ".heic": "HEIC", ".heif": "HEIF", ".avif": "AVIF", ".cr2": "camera raw", ".cr3": "camera raw",
    ".nef": "camera raw", ".arw": "camera raw", ".dng": "camera raw", ".orf": "camera raw", ".rw2": "camera raw",
}  # fmt: skip
"""Extensions of formats that are not supported, and the names of the formats."""

NAMED: Final = (*EXTENSIONS, *UNREADABLE)
"""Extensions that diagnosis looks for: a photo in an unsupported format is reported with the reason."""
