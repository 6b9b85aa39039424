"""Edits the leaf and the diseased area with a brush over the photo, with the percentage beside it."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from PySide6.QtCore import QPointF, Qt, Signal
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
from PySide6.QtWidgets import QWidget

from app.mask import BACKGROUND, DISEASED, LEAF, Mask
from app.translation import tr
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.fields import Slider
from app.widgets.layouts import column, row
from app.widgets.overlays import painted
from app.widgets.parts import Dialog, button, confirm, label, named, switch
from app.widgets.photo_view import PhotoView
from core.percent import percent

RADII: Final = (3, 120)
"""Smallest and largest radius of the brush in thousandths of the photo's side."""
PAINTED: Final = (DISEASED, LEAF, BACKGROUND)
"""Label that each of the three brushes paints."""
UNDO_STEPS: Final = 100
"""Strokes that can be undone; a mask has 50 KB."""


class BrushDialog(Dialog):
    """Signal: `corrected(mask)` when the mask is saved; None if it is the automatic mask."""

    corrected = Signal(object)

    def __init__(self, parent: QWidget, photos: Thumbnails, path: str, area: Mask, automatic: Mask) -> None:
        super().__init__(parent, tr("Edit diseased area"), 680, 780)
        self.area, self._automatic = area, automatic
        self._history, self._undone = deque[Mask](maxlen=UNDO_STEPS), deque[Mask]()
        self.photo = PhotoView(tr("Photo only"))
        self.photo.setMinimumSize(280, 280)
        self.photo.request(photos, path)
        self.canvas = MaskCanvas(self.photo)
        self.canvas.began.connect(self._on_began)
        self.canvas.touched.connect(self._on_touched)
        self.figure = label("", "title")
        self.grade = label("", "muted")
        self.size_ = Slider(tr("Size of the brush"), *RADII, round(1000 * self.canvas.radius))
        self.size_.valueChanged.connect(self._on_size)
        self.undo = button(tr("Undo"), partial(self._step, self._history, self._undone))
        self.redo = button(tr("Redo"), partial(self._step, self._undone, self._history))
        self.automatic = button(tr("Reset to automatic"), self._on_automatic, "flat",
                                tr("Discard the edits; Undo restores them"))  # fmt: skip
        self.fit = button(tr("Whole photo"), lambda: self.photo.zoom_to(1.0), "flat", tr("Zoom out") + " (0)")
        for keys, act in (
            (QKeySequence.StandardKey.Undo, self.undo.click), ("Ctrl+Shift+Z", self.redo.click),
            ("Ctrl+Y", self.redo.click), ("0", self.fit.click),
        ):  # fmt: skip
            QShortcut(QKeySequence(keys), self, act)
        self.photo.moved.connect(self._on_moved)
        self._lay_out()
        self._show()

    def _lay_out(self) -> None:
        self.tools, tools = switch(
            (tr("&Diseased"), tr("Paint diseased areas")), (tr("&Healthy leaf"), tr("Paint areas that are healthy")),
            (tr("&Not leaf"), tr("Paint areas that are not part of the leaf")),
        )  # fmt: skip
        tip = tr("Save the edits with the result; the photo is not changed")
        keep = button(tr("Keep"), self._on_keep, "primary", tip)
        hint = label(tr("Wheel: zoom. Right mouse button: move the photo."), "caption")
        self.setLayout(column(
            row(self.figure, None, self.grade), (self.photo, 1),
            row(*tools, None, label(tr("Size"), "caption"), self.size_, spacing=6),
            row(hint, None, self.fit, spacing=6),
            row(self.undo, self.redo, self.automatic, None, button(tr("Cancel"), self.reject), keep),
            spacing=8, margins=None,
        ))  # fmt: skip

    def _on_began(self) -> None:
        self._history.append(self.area)
        self._undone.clear()

    def _on_touched(self, y: float, x: float) -> None:
        self.area = self.area.paint(y, x, self.canvas.radius, PAINTED[self.tools.checkedId()])
        self._show()

    def _step(self, source: deque[Mask], target: deque[Mask]) -> None:
        """Show the last mask of `source`; `target` gets the one shown until now."""
        target.append(self.area)
        self.area = source.pop()
        self._show()

    def _on_automatic(self) -> None:
        self._on_began()
        self.area = self._automatic
        self._show()

    def _on_moved(self) -> None:
        self.fit.setEnabled(self.photo.zoom > 1)
        self.canvas.update()

    def _on_size(self, value: int) -> None:
        self.canvas.radius = value / 1000
        self.canvas.update()

    def reject(self) -> None:
        """Close without the edits; Escape, pressed for another reason, must not discard them at once."""
        if not self._history or confirm(self, tr("Discard the edits?"), tr("Unfinished work is lost."), tr("Discard")):
            super().reject()

    def _on_keep(self) -> None:
        self.corrected.emit(self.area if self.area.corrected else None)
        self.accept()

    def _show(self) -> None:
        severity = self.area.severity
        self.figure.setText(tr("{share} diseased", share=percent(severity.percent / 100)))
        self.grade.setText(tr("Grade {grade} of 11 (Horsfall-Barratt).", grade=severity.grade))
        self.photo.show_layer(painted(self.area.labels), self.area.box)
        self.undo.setEnabled(bool(self._history))
        self.redo.setEnabled(bool(self._undone))
        self.automatic.setEnabled(self.area is not self._automatic)
        self.fit.setEnabled(self.photo.zoom > 1)


ARROWS: Final = {Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, -1), Qt.Key.Key_Down: (0, 1)}
ZOOM_STEP: Final = 1.25
"""Factor of one notch of the wheel or one key press."""
ZOOMS: Final = {"+": ZOOM_STEP, "=": ZOOM_STEP, "-": 1 / ZOOM_STEP}
FIRST_RADIUS: Final = 0.03
"""Initial radius of the brush as a fraction of the photo's side."""


class MaskCanvas(QWidget):
    """Signals: `began()` for a stroke, `touched(y, x)` in fractions of the photo's square."""

    began = Signal()
    touched = Signal(float, float)

    def __init__(self, photo: PhotoView) -> None:
        super().__init__(photo, mouseTracking=True, focusPolicy=Qt.FocusPolicy.StrongFocus)
        self._photo = photo
        self._at: QPointF | None = None
        self._painting = False
        self._held: QPointF | None = None
        self.radius = FIRST_RADIUS
        photo.setLayout(column(self))
        named(self, tr("Brush: the arrow keys move it, the space bar paints, plus and minus zoom"))
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
        elif event.key() in ARROWS:
            across, down = ARROWS[Qt.Key(event.key())]
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
        self._photo.zoom_to(self._photo.zoom * ZOOM_STEP ** (event.angleDelta().y() / 120), event.position())
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
