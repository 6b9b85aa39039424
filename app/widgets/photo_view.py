"""One photo in full, as large as possible, with an optional frame and overlay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFont, QImage, QMouseEvent, QPainter, QPainterPath, QPaintEvent, QPen, QPixmap
from PySide6.QtWidgets import QWidget

from app.translation import tr
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.layouts import column, row
from app.widgets.overlays import coloured
from app.widgets.parts import Dialog, button, label
from core.diagnosis.boxes import WHOLE, Box
from core.ops.contract import Array

MAX_ZOOM: Final = 8.0
"""Largest magnification of the fitted photo."""
STALE_MS: Final = 200
"""Longest time that the previous photo is shown while another one is decoded."""
SHADE: Final = QColor(0, 0, 0, 95)
"""Colour over the part that was not diagnosed."""


class PhotoView(QWidget):
    """A photo. Boxes (y0, x0, y1, x1) are fractions of its central square, which networks see.

    Signals: `opened()` on a double click; `moved()` when the photo's position in the widget changes; `picked(index)`
    on a click into one of the boxes.
    """

    opened = Signal()
    moved = Signal()
    picked = Signal(int)

    def __init__(self, name: str) -> None:
        super().__init__(accessibleName=name, minimumSize=QSize(160, 160))
        self._photo = QPixmap()
        self._layer = QPixmap()
        self._box: Box = WHOLE
        self._frame: Box | None = None
        self._boxes: Sequence[tuple[Box, QColor]] = ()
        self._chosen = -1
        self._wanted = ""
        self._photos: Thumbnails | None = None
        self._missing = False
        self._stale = QTimer(self, singleShot=True, interval=STALE_MS)
        self._stale.timeout.connect(self._forget)
        self._centre = QPointF(0.5, 0.5)
        self.zoom = 1.0
        self.strength = 1.0

    def show_photo(self, photo: QImage) -> None:
        self._photo, self._layer = QPixmap.fromImage(photo), QPixmap()
        self.update()

    def request(self, photos: Thumbnails, path: str) -> None:
        """Show a photo as soon as it is decoded; the previous one stays for a moment, so that nothing flickers."""
        self._wanted = path
        self._stale.start()
        photos.ready.connect(self._on_ready, Qt.ConnectionType.UniqueConnection)
        self._photos = photos
        self._on_ready(path)

    def _on_ready(self, path: str) -> None:
        if path != self._wanted or self._photos is None:
            return
        picture = self._photos.get(path)
        if picture is not None:
            self._photo, self._missing = picture, picture.isNull()
            self._stale.stop()
            self.moved.emit()
            self.update()

    def _forget(self) -> None:
        """Take away the photo before the wanted one: it must not stay beside the other's diagnosis."""
        self._photo, self._missing = QPixmap(), False
        self.update()

    def show_map(self, values: Array | None) -> None:
        self.show_layer(None if values is None else coloured(values))

    def show_layer(self, layer: QImage | None, box: Box = WHOLE) -> None:
        """Show an image over a part of the photo's square; None for none."""
        self._layer, self._box = QPixmap() if layer is None else QPixmap.fromImage(layer), box
        self.update()

    def set_strength(self, strength: float) -> None:
        self.strength = strength
        self.update()

    def show_frame(self, box: Box | None) -> None:
        """Frame the part of the square that was diagnosed, unless it is the whole photo; None for no frame."""
        self._frame = box
        self.update()

    def show_boxes(self, boxes: Sequence[tuple[Box, QColor]] = (), chosen: int = -1) -> None:
        """Draw boxes in their colours, numbered from 1; the chosen one is thicker."""
        self._boxes, self._chosen = boxes, chosen
        self.update()

    def whole(self) -> QRectF:
        size = self._photo.size() if not self._photo.isNull() else QSize(1, 1)
        scale = self.zoom * min(self.width() / size.width(), self.height() / size.height())
        width, height = size.width() * scale, size.height() * scale
        left = _placed(self._centre.x(), width, self.width())
        return QRectF(left, _placed(self._centre.y(), height, self.height()), width, height)

    def place(self) -> QRectF:
        """The rectangle of the photo's central square in the widget."""
        whole = self.whole()
        side = min(whole.width(), whole.height())
        return QRectF(whole.center().x() - side / 2, whole.center().y() - side / 2, side, side)

    def zoom_to(self, zoom: float, at: QPointF | None = None) -> None:
        """Zoom 1 to `MAX_ZOOM` times; the point `at` of the widget (default: its centre) stays in place."""
        at = at or QPointF(self.width() / 2, self.height() / 2)
        before = self.whole()
        self.zoom = min(max(zoom, 1.0), MAX_ZOOM)
        ratio = self.whole().width() / before.width()
        self._look_at(before.topLeft() - at, at, ratio)

    def pan(self, by: QPointF) -> None:
        """Move the photo within the widget, without more empty space than necessary."""
        self._look_at(self.whole().topLeft(), by, 1.0)

    def _look_at(self, corner: QPointF, shift: QPointF, ratio: float) -> None:
        """Set the photo's corner to ``ratio * corner + shift``."""
        whole, middle = self.whole(), QPointF(self.width() / 2, self.height() / 2)
        seen = middle - (corner * ratio + shift)
        self._centre = QPointF(_clamped(seen.x() / whole.width(), self.width() / whole.width()),
                               _clamped(seen.y() / whole.height(), self.height() / whole.height()))  # fmt: skip
        self.moved.emit()
        self.update()

    def sizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        return QSize(320, 320)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        """Pick the smallest box under the mouse."""
        places = [within(self.place(), box) for box, _ in self._boxes]
        hit = [index for index, place in enumerate(places) if place.contains(event.position())]
        if hit:
            self.picked.emit(min(hit, key=lambda index: places[index].width() * places[index].height()))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        self.opened.emit()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            if self._photo.isNull():
                if self._missing:  # as in the grid of photos
                    painter.setPen(self.palette().placeholderText().color())
                    painter.setFont(QFont(self.font().family(), 40))
                    painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, "?")
                return
            painter.drawPixmap(self.whole(), self._photo, QRectF(self._photo.rect()))
            if not self._layer.isNull() and self.strength > 0:
                painter.setOpacity(self.strength)
                painter.drawPixmap(within(self.place(), self._box), self._layer, QRectF(self._layer.rect()))
                painter.setOpacity(1.0)
            if self._frame is not None:
                self._paint_frame(painter, within(self.place(), self._frame))
            self._paint_boxes(painter)

    def _paint_boxes(self, painter: QPainter) -> None:
        painter.setFont(QFont(self.font().family(), 10, QFont.Weight.Bold))
        order = sorted(range(len(self._boxes)), key=lambda index: index == self._chosen)  # the chosen one on top
        for index in order:
            box, colour = self._boxes[index]
            place, width = within(self.place(), box), 4.0 if index == self._chosen else 2.0
            for ink, wide in ((QColor(0, 0, 0, 150), width + 2), (colour, width)):
                painter.setPen(QPen(ink, wide))
                painter.drawRect(place)
            corner = QRectF(place.x(), place.y(), 20, 18)
            painter.fillRect(corner, colour)
            painter.setPen(QColor(255, 255, 255))
            painter.drawText(corner, Qt.AlignmentFlag.AlignCenter, str(index + 1))

    def _paint_frame(self, painter: QPainter, frame: QRectF) -> None:
        """Frame the diagnosed part and shade the rest."""
        whole = self.whole()
        if max(abs(whole.width() - frame.width()), abs(whole.height() - frame.height())) < 1:
            return
        rest = QPainterPath()
        rest.addRect(whole)
        rest.addRect(frame)  # odd-even fill: the overlap is left out of the shade
        painter.fillPath(rest, SHADE)
        for colour, width in ((QColor(0, 0, 0, 150), 3.0), (QColor(255, 255, 255), 1.2)):
            painter.setPen(QPen(colour, width))
            painter.drawRect(frame.adjusted(1, 1, -1, -1))


def _placed(centre: float, length: float, room: float) -> float:
    """The start of a side whose fraction `centre` is in the middle; centred if the side fits."""
    return (room - length) / 2 if length <= room else room / 2 - centre * length


def _clamped(centre: float, seen: float) -> float:
    """The fraction of a side in the middle, so that the visible fraction `seen` fills the space."""
    return 0.5 if seen >= 1 else min(max(centre, seen / 2), 1 - seen / 2)


def within(place: QRectF, box: Box) -> QRectF:
    """A part of a square on the screen; `box` in fractions."""
    y0, x0, y1, x1 = box
    side = place.width()
    return QRectF(place.x() + x0 * side, place.y() + y0 * side, (x1 - x0) * side, (y1 - y0) * side)


class PhotoDialog(Dialog):
    """A photo in a large dialog, with its class and file."""

    def __init__(self, parent: QWidget, photos: Thumbnails, path: str, title: str) -> None:
        super().__init__(parent, title, 900, 760)
        view = PhotoView(title)
        view.request(photos, path)
        where = label(path, "caption", wrap=True)
        where.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        buttons = row(None, button(tr("Close"), self.reject))
        self.setLayout(column(label(title, "heading"), (view, 1), where, buttons, margins=None))
