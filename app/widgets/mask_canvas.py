"""The brush over a photo, by mouse and keyboard, with zoom and pan."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import QMargins, QPointF, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.translation import tr
from app.widgets.naming import named
from app.widgets.photo_view import PhotoView

MOVES: Final = {Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, -1), Qt.Key.Key_Down: (0, 1)}
CLOSER: Final = 1.25
"""Times that one notch of the wheel, or one key, enlarges the photo."""
ZOOMS: Final = {"+": CLOSER, "=": CLOSER, "-": 1 / CLOSER}
FIRST: Final = 0.03
"""Radius of the brush to begin with, as a share of the photo's square."""


@final
class MaskCanvas(QWidget):
    """Signals: `began()` for a stroke, `touched(y, x)` in fractions of the photo's square."""

    began = Signal()
    touched = Signal(float, float)

    def __init__(self, photo: PhotoView) -> None:
        super().__init__(photo)
        self._photo = photo
        self._at: QPointF | None = None
        self._painting = False
        self._held: QPointF | None = None
        self.radius = FIRST
        layout = QVBoxLayout(photo)
        layout.setContentsMargins(QMargins())
        layout.addWidget(self)
        self.setMouseTracking(True)
        named(self, tr("Brush: the arrow keys move it, the space bar paints, plus and minus zoom"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.CrossCursor)

    def _touch(self, at: QPointF) -> None:
        place = self._photo.place()
        side = max(place.width(), 1)
        self.touched.emit((at.y() - place.y()) / side, (at.x() - place.x()) / side)

    def mousePressEvent(self, event: QMouseEvent) -> None:  # noqa: N802 (Qt's names here and below)
        if event.button() == Qt.MouseButton.LeftButton:
            self.began.emit()
            self._touch(event.position())
        else:
            self._held = event.position()
            self.setCursor(Qt.CursorShape.ClosedHandCursor)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        self._held = None
        self.setCursor(Qt.CursorShape.CrossCursor)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        before, self._at = self._at, event.position()
        if self._held is not None:
            self._photo.pan(self._at - self._held)
            self._held = self._at
        elif event.buttons() & Qt.MouseButton.LeftButton:
            self._touch_along(before or self._at, self._at)
        self.update()

    def _touch_along(self, start: QPointF, end: QPointF) -> None:
        """Fill the gaps of a fast stroke with discs at half a radius from each other."""
        step = max(self.radius * self._photo.place().width() / 2, 1.0)
        way = end - start
        parts = max(int((way.x() ** 2 + way.y() ** 2) ** 0.5 / step), 1)
        for part in range(1, parts + 1):
            self._touch(start + way * (part / parts))

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        """Arrow keys move the brush by its radius, painting while the space bar is down."""
        place = self._photo.place()
        at = self._at or place.center()
        if event.key() == Qt.Key.Key_Space:
            if not event.isAutoRepeat():
                self._painting = True
                self.began.emit()
                self._touch(at)
        elif event.key() in MOVES:
            across, down = MOVES[Qt.Key(event.key())]
            step = max(self.radius * place.width(), 1.0)
            there = QPointF(min(max(at.x() + across * step, place.left()), place.right()),
                            min(max(at.y() + down * step, place.top()), place.bottom()))  # fmt: skip
            if self._painting:
                self._touch_along(at, there)
            at = self._in_sight(there)
        elif event.text() in ZOOMS:
            self._photo.zoom_to(self._photo.zoom * ZOOMS[event.text()], at)
        else:
            super().keyPressEvent(event)
            return
        self._at = at
        self.update()

    def _in_sight(self, at: QPointF) -> QPointF:
        """Pan so that a point is inside the widget; returns its position."""
        inside = QPointF(min(max(at.x(), 0.0), self.width()), min(max(at.y(), 0.0), self.height()))
        before = self._photo.place().topLeft()
        if at != inside:
            self._photo.pan(inside - at)
        return at + self._photo.place().topLeft() - before

    def keyReleaseEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        if event.key() == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._painting = False

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        """Show the brush where the keyboard will move it."""
        self._at = self._at or self._photo.place().center()
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        self._painting, self._at = False, None
        self.update()

    def leaveEvent(self, event: object) -> None:  # noqa: N802
        self._at = self._photo.place().center() if self.hasFocus() else None
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802
        """Zoom around the pointer."""
        self._photo.zoom_to(self._photo.zoom * CLOSER ** (event.angleDelta().y() / 120), event.position())
        event.accept()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        if self._at is None:
            return
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            radius = self.radius * self._photo.place().width()
            for colour, width in ((QColor(0, 0, 0, 160), 3.0), (QColor(255, 255, 255), 1.5)):
                painter.setPen(QPen(colour, width))
                painter.drawEllipse(self._at, radius, radius)
