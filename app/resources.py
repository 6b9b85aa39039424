"""Access to the files of `resources/` by name."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

ICON_SIZES: Final = (16, 20, 24, 32, 48, 64)
"""Pixmaps an icon carries; 64 serves a 32-pixel icon on a display of twice the density."""


def data(name: str) -> bytes:
    """Bytes of a file in `resources/`."""
    return files("resources").joinpath(name).read_bytes()


def text(name: str) -> str:
    return data(name).decode("utf-8")


def place(name: str) -> str:
    """Path of a folder of `resources/`, for style sheets, which read files themselves."""
    return str(files("resources").joinpath(name)).replace("\\", "/")


@cache
def table(name: str) -> Any:
    """A JSON file, read once."""
    return json.loads(data(name))


@cache
def icon(name: str, colour: str, active: str = "", gap: float = 0.0) -> QIcon:
    """The drawing `icons/<name>.svg` in one colour, and in a second one for the switched-on state.

    `gap`: empty space behind it, as a fraction of its side (Qt leaves four pixels before a button's text).
    """
    found = QIcon()
    drawing = text(f"icons/{name}.svg")
    for state, shade in ((QIcon.State.Off, colour), (QIcon.State.On, active or colour)):
        for size in ICON_SIZES:
            found.addPixmap(_render(drawing.replace("currentColor", shade), size, gap), QIcon.Mode.Normal, state)
    return found


def pixmap(name: str, colour: str, size: int, ratio: float = 1.0) -> QPixmap:
    """The drawing as a picture of so many logical pixels, sharp on screens with a device pixel ratio of `ratio`."""
    found = _render(text(f"icons/{name}.svg").replace("currentColor", colour), round(size * ratio))
    found.setDevicePixelRatio(ratio)
    return found


def _render(drawing: str, size: int, gap: float = 0.0) -> QPixmap:
    image = QPixmap(round(size * (1 + gap)), size)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(drawing.encode()).render(painter, QRectF(0, 0, size, size))
    painter.end()
    return image
