"""Correct by hand what was taken for leaf and for disease: a brush over the photo, the percentage live beside it."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import QMargins, QPointF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QShortcut,
    QWheelEvent,
)
from PySide6.QtWidgets import QButtonGroup, QDialog, QPushButton, QVBoxLayout, QWidget

from app.mask import DISEASED, GROUND, LEAF, Mask
from app.translation import tr
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.fields import Slider
from app.widgets.naming import named
from app.widgets.parts import button, label, row
from app.widgets.photo_view import PhotoView, painted
from core.percent import percent

SIZES: Final = (5, 120, 30)
"""Least, greatest and first radius of the brush, thousandths of the photo's side."""
MOVES: Final = {Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, -1), Qt.Key.Key_Down: (0, 1)}
REMEMBERED: Final = 100
"""Strokes that can be taken back; a mask has 50 KB."""


@final
class MaskCanvas(QWidget):
    """The brush over a photo. Signals: `began()` a stroke, `touched(y, x)` in shares of the photo's square."""

    began = Signal()
    touched = Signal(float, float)

    def __init__(self, photo: PhotoView) -> None:
        super().__init__(photo)
        self._photo = photo
        self._at: QPointF | None = None
        self._painting = False
        self.radius = SIZES[2] / 1000
        layout = QVBoxLayout(photo)
        layout.setContentsMargins(QMargins())
        layout.addWidget(self)
        self.setMouseTracking(True)
        named(self, tr("Brush: the arrow keys move it, the space bar paints"))
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

    def mouseMoveEvent(self, event: QMouseEvent) -> None:  # noqa: N802
        before, self._at = self._at, event.position()
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._touch_along(before or self._at, self._at)
        self.update()

    def _touch_along(self, start: QPointF, end: QPointF) -> None:
        """A quick hand leaves no gaps: discs at half a radius from each other."""
        step = max(self.radius * self._photo.place().width() / 2, 1.0)
        way = end - start
        parts = max(int((way.x() ** 2 + way.y() ** 2) ** 0.5 / step), 1)
        for part in range(1, parts + 1):
            self._touch(start + way * (part / parts))

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        """Arrow keys move the brush by its radius, painting while the space bar is down."""
        place = self._photo.place()
        at = self._at or QPointF(place.center())
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
            at = there
        else:
            super().keyPressEvent(event)
            return
        self._at = at
        self.update()

    def keyReleaseEvent(self, event: QKeyEvent) -> None:  # noqa: N802
        if event.key() == Qt.Key.Key_Space and not event.isAutoRepeat():
            self._painting = False

    def focusInEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        """The brush is seen where the keyboard will move it."""
        self._at = self._at or QPointF(self._photo.place().center())
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: N802
        self._painting, self._at = False, None
        self.update()

    def leaveEvent(self, event: object) -> None:  # noqa: N802
        self._at = QPointF(self._photo.place().center()) if self.hasFocus() else None
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: N802
        if self._at is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        radius = self.radius * self._photo.place().width()
        for colour, width in ((QColor(0, 0, 0, 160), 3.0), (QColor(255, 255, 255), 1.5)):
            painter.setPen(QPen(colour, width))
            painter.drawEllipse(self._at, radius, radius)


@final
class BrushDialog(QDialog):
    """Signal: `corrected(mask)` when it is kept; None goes back to what was measured."""

    corrected = Signal(object)

    def __init__(self, parent: QWidget, photos: Thumbnails, path: str, area: Mask, touched: bool) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Correct the diseased area"))
        self.resize(680, min(780, parent.window().height() - 40))
        self.area = area
        self._history: list[Mask] = []
        self.photo = PhotoView(tr("The photo"))
        self.photo.setMinimumSize(280, 280)
        self.photo.set_strength(1.0)
        self.photo.wish(photos, path)
        self.canvas = MaskCanvas(self.photo)
        self.canvas.began.connect(self._on_began)
        self.canvas.touched.connect(self._on_touched)
        self.figure = label("", "title")
        self.grade = label("", "muted")
        self.size_ = named(Slider(), tr("Size of the brush"))
        self.size_.setRange(*SIZES[:2])
        self.size_.setValue(SIZES[2])
        self.size_.valueChanged.connect(self._on_size)
        self.undo = button(tr("Undo"), self._on_undo)
        self._measured = button(tr("As measured"), self._on_measured, "flat", tr("Forget the corrections"))
        self._measured.setVisible(touched)
        QShortcut(QKeySequence(QKeySequence.StandardKey.Undo), self, self._on_undo)
        self._lay_out()
        self._show()

    def _lay_out(self) -> None:
        self.tools = QButtonGroup(self)
        tools: list[QWidget] = []
        for value, text, tip in (
            (DISEASED, tr("&Diseased"), tr("Paint what is diseased")),
            (LEAF, tr("&Healthy leaf"), tr("Paint what is healthy after all")),
            (GROUND, tr("&Not leaf"), tr("Paint what does not belong to the leaf")),
        ):
            made = QPushButton(text)
            made.setCheckable(True)
            made.setProperty("role", "switch")
            made.setToolTip(tip)
            self.tools.addButton(made, value)
            tools.append(made)
        self.tools.button(DISEASED).setChecked(True)
        keep = button(tr("Keep"), self._on_keep, "primary", tr("Keep this with the result; the photo is not changed"))
        layout = QVBoxLayout(self)
        layout.setSpacing(8)
        layout.addLayout(row(self.figure, None, self.grade))
        layout.addWidget(self.photo, 1)
        layout.addLayout(row(*tools, None, label(tr("Size"), "caption"), self.size_, spacing=6))
        layout.addLayout(row(self.undo, self._measured, None, button(tr("Cancel"), self.reject), keep))

    def _on_began(self) -> None:
        self._history = [*self._history[1 - REMEMBERED :], self.area]

    def _on_touched(self, y: float, x: float) -> None:
        self.area = self.area.paint(y, x, self.canvas.radius, self.tools.checkedId())
        self._show()

    def _on_undo(self) -> None:
        if self._history:
            self.area = self._history.pop()
            self._show()

    def _on_size(self, value: int) -> None:
        self.canvas.radius = value / 1000
        self.canvas.update()

    def _on_keep(self) -> None:
        self.corrected.emit(self.area)
        self.accept()

    def _on_measured(self) -> None:
        self.corrected.emit(None)
        self.accept()

    def _show(self) -> None:
        severity = self.area.severity
        self.figure.setText(tr("{share} diseased", share=percent(severity.percent / 100)))
        self.grade.setText(tr("Grade {grade} of 11 (Horsfall-Barratt).", grade=severity.grade))
        self.photo.show_layer(painted(self.area.labels), self.area.box)
        self.undo.setEnabled(bool(self._history))
