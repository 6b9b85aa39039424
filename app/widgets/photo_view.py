"""One photo, as large as its place allows, with a class map over it if there is one."""

from __future__ import annotations

from typing import Final, final

import numpy as np
from PySide6.QtCore import QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFont, QImage, QMouseEvent, QPainter, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QVBoxLayout, QWidget

from app.mask import DISEASED, GROUND, Box
from app.translation import tr
from app.viewmodels.thumbnails import Thumbnails, decode
from app.widgets.parts import fit, label
from core.ops.contract import Array

LARGE: Final = 900
WHOLE: Final[Box] = (0.0, 0.0, 1.0, 1.0)
SICK: Final = (214, 46, 30)
RIM: Final = (255, 255, 255)

# Viridis-like ramp from transparent over yellow to red: bright where the map is high. RGB at 0, 1/2 and 1.
RAMP: Final = np.array(((70, 30, 110), (225, 90, 60), (250, 235, 90)), np.float32)


@final
class PhotoView(QWidget):
    """A square photo; `show_map` lays a map in 0..1 over it with the given strength. Signal: `opened()` by double
    click."""

    opened = Signal()

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setMinimumSize(160, 160)
        self._photo = QPixmap()
        self._map = QPixmap()
        self._box: Box = WHOLE
        self._frame: Box = WHOLE
        self._wanted = ""
        self._photos: Thumbnails | None = None
        self._missing = False
        self.strength = 0.0

    def show_photo(self, photo: QImage) -> None:
        self._photo, self._map = QPixmap.fromImage(photo), QPixmap()
        self.update()

    def wish(self, photos: Thumbnails, path: str) -> None:
        """Show a file's photo as soon as it is decoded; the one before stays until then."""
        self._wanted = path
        photos.ready.connect(self._on_ready, Qt.ConnectionType.UniqueConnection)
        self._photos = photos
        self._on_ready(path)

    def _on_ready(self, path: str) -> None:
        if path != self._wanted or self._photos is None:
            return
        picture = self._photos.get(path)
        if picture is not None:
            self._photo, self._missing = picture, picture.isNull()
            self.update()

    def show_map(self, values: Array | None) -> None:
        """A map uint8 ``(h, w)`` over the photo's square; None for none."""
        self.show_layer(None if values is None else coloured(values))

    def show_layer(self, layer: QImage | None, box: Box = WHOLE) -> None:
        """A picture over a part of the photo's square (y0, x0, y1, x1 as shares); None for none."""
        self._map, self._box = QPixmap() if layer is None else QPixmap.fromImage(layer), box
        self.update()

    def set_strength(self, strength: float) -> None:
        self.strength = strength
        self.update()

    def show_frame(self, box: Box) -> None:
        """The part of the square that was looked at; the whole of it needs no frame."""
        self._frame = box
        self.update()

    def place(self) -> QRect:
        """Where the photo's square lies in the widget."""
        side = min(self.width(), self.height())
        return QRect((self.width() - side) // 2, (self.height() - side) // 2, side, side)

    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        return QSize(320, 320)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        self.opened.emit()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        place = self.place()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        if not self._photo.isNull():
            painter.drawPixmap(place, self._photo)
        elif self._missing:  # as in the grid of photos
            painter.setPen(self.palette().placeholderText().color())
            painter.setFont(QFont(self.font().family(), 40))
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, "?")
        if not self._map.isNull() and self.strength > 0:
            painter.setOpacity(self.strength)
            painter.drawPixmap(within(place, self._box), self._map, QRectF(self._map.rect()))
        if self._frame != WHOLE:
            painter.setOpacity(1.0)
            for colour, width in ((QColor(0, 0, 0, 150), 3.0), (QColor(255, 255, 255), 1.2)):
                painter.setPen(QPen(colour, width))
                painter.drawRect(within(place, self._frame))


def within(place: QRect, box: Box) -> QRectF:
    """Part of a square on the screen, `box` in shares."""
    y0, x0, y1, x1 = box
    side = place.width()
    return QRectF(place.x() + x0 * side, place.y() + y0 * side, (x1 - x0) * side, (y1 - y0) * side)


def coloured(values: Array) -> QImage:
    """A map uint8 ``(h, w)`` as a colour picture; low values are nearly transparent."""
    v = (values.astype(np.float32) / 255)[..., None]
    rgb = np.where(v < 0.5, RAMP[0] + 2 * v * (RAMP[1] - RAMP[0]), RAMP[1] + (2 * v - 1) * (RAMP[2] - RAMP[1]))
    alpha = 255 * np.sqrt(v)
    picture = np.ascontiguousarray(np.concatenate([rgb, alpha], axis=2).astype(np.uint8))
    height, width = picture.shape[:2]
    return QImage(picture.tobytes(), width, height, 4 * width, QImage.Format.Format_RGBA8888).copy()


def painted(labels: Array) -> QImage:
    """Leaf and diseased area, uint8 ``(h, w)``, as a picture: disease in red, a pale veil off the leaf, white rims."""
    picture = np.zeros((*labels.shape, 4), np.uint8)
    picture[labels == DISEASED] = (*SICK, 150)
    picture[labels == GROUND] = (*RIM, 90)
    sick = np.pad(labels == DISEASED, 1)
    beside = sick[:-2, 1:-1] | sick[2:, 1:-1] | sick[1:-1, :-2] | sick[1:-1, 2:]
    picture[beside & (labels != DISEASED)] = (*RIM, 220)
    return QImage(picture.tobytes(), labels.shape[1], labels.shape[0], 4 * labels.shape[1],
                  QImage.Format.Format_RGBA8888).copy()  # fmt: skip


@final
class PhotoDialog(QDialog):
    """A photo large, with its class and its file."""

    def __init__(self, parent: QWidget, path: str, title: str) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        fit(self, 640, 720)
        view = PhotoView(title)
        picture = decode(path, LARGE)
        view.show_photo(picture)
        where = label(path, "caption", wrap=True)
        where.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.addWidget(label(title, "heading"))
        if picture.isNull():
            layout.addWidget(label(tr("This photo cannot be read; has it been moved?"), "warning"))
        layout.addWidget(view, 1)
        layout.addWidget(where)
        layout.addWidget(buttons)
