"""Edits the leaf and the diseased area with a brush over the photo, with the percentage beside it."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QButtonGroup, QDialog, QPushButton, QVBoxLayout, QWidget

from app.mask import BACKGROUND, DISEASED, LEAF, Mask
from app.translation import tr
from app.viewmodels.thumbnails import Thumbnails
from app.widgets.fields import Slider
from app.widgets.mask_canvas import MaskCanvas
from app.widgets.naming import named
from app.widgets.overlays import painted
from app.widgets.parts import button, label, row
from app.widgets.photo_view import PhotoView
from core.percent import percent

SIZES: Final = (3, 120)
"""Least and greatest radius of the brush, thousandths of the photo's side."""
REMEMBERED: Final = 100
"""Strokes that can be taken back; a mask has 50 KB."""


@final
class BrushDialog(QDialog):
    """Signal: `corrected(mask)` when the mask is saved; None if it is the automatic mask."""

    corrected = Signal(object)

    def __init__(self, parent: QWidget, photos: Thumbnails, path: str, area: Mask, automatic: Mask) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Edit diseased area"))
        self.resize(680, min(780, parent.window().height() - 40))
        self.area, self._automatic = area, automatic
        self._history: list[Mask] = []
        self._undone: list[Mask] = []
        self.photo = PhotoView(tr("Photo only"))
        self.photo.setMinimumSize(280, 280)
        self.photo.wish(photos, path)
        self.canvas = MaskCanvas(self.photo)
        self.canvas.began.connect(self._on_began)
        self.canvas.touched.connect(self._on_touched)
        self.figure = label("", "title")
        self.grade = label("", "muted")
        self.size_ = named(Slider(), tr("Size of the brush"))
        self.size_.setRange(*SIZES)
        self.size_.setValue(round(1000 * self.canvas.radius))
        self.size_.valueChanged.connect(self._on_size)
        self.undo = button(tr("Undo"), self._on_undo)
        self.redo = button(tr("Redo"), self._on_redo)
        self.automatic = button(tr("Reset to automatic"), self._on_automatic, "flat",
                                tr("Discard the edits; Undo restores them"))  # fmt: skip
        self.fit = button(tr("Whole photo"), lambda: self.photo.zoom_to(1.0), "flat", tr("Zoom out") + " (0)")
        for keys, act in (
            (QKeySequence.StandardKey.Undo, self._on_undo), ("Ctrl+Shift+Z", self._on_redo), ("Ctrl+Y", self._on_redo),
            ("0", self.fit.click),
        ):  # fmt: skip
            QShortcut(QKeySequence(keys), self, act)
        self.photo.moved.connect(self._on_moved)
        self._lay_out()
        self._show()

    def _lay_out(self) -> None:
        self.tools = QButtonGroup(self)
        tools: list[QWidget] = []
        for value, text, tip in (
            (DISEASED, tr("&Diseased"), tr("Paint diseased areas")),
            (LEAF, tr("&Healthy leaf"), tr("Paint areas that are healthy")),
            (BACKGROUND, tr("&Not leaf"), tr("Paint areas that are not part of the leaf")),
        ):
            made = QPushButton(text)
            made.setCheckable(True)
            made.setProperty("role", "switch")
            made.setToolTip(tip)
            self.tools.addButton(made, value)
            tools.append(made)
        self.tools.button(DISEASED).setChecked(True)
        keep = button(tr("Keep"), self._on_keep, "primary", tr("Save the edits with the result; the photo is not "
                                                               "changed"))
        layout = QVBoxLayout(self)
        layout.setSpacing(8)
        layout.addLayout(row(self.figure, None, self.grade))
        layout.addWidget(self.photo, 1)
        layout.addLayout(row(*tools, None, label(tr("Size"), "caption"), self.size_, spacing=6))
        hint = label(tr("Wheel: zoom. Right mouse button: move the photo."), "caption")
        layout.addLayout(row(hint, None, self.fit, spacing=6))
        cancel = button(tr("Cancel"), self.reject)
        layout.addLayout(row(self.undo, self.redo, self.automatic, None, cancel, keep))

    def _on_began(self) -> None:
        self._history = [*self._history[1 - REMEMBERED :], self.area]
        self._undone = []

    def _on_touched(self, y: float, x: float) -> None:
        self.area = self.area.paint(y, x, self.canvas.radius, self.tools.checkedId())
        self._show()

    def _on_undo(self) -> None:
        if self._history:
            self._undone.append(self.area)
            self.area = self._history.pop()
            self._show()

    def _on_redo(self) -> None:
        if self._undone:
            self._history.append(self.area)
            self.area = self._undone.pop()
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
