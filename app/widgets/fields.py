"""Input fields that ignore the mouse wheel, so that scrolling changes no setting, and a search field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from PySide6.QtCore import QEvent, QSignalBlocker, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QWheelEvent
from PySide6.QtWidgets import QComboBox, QLineEdit, QSlider, QSpinBox, QStyle, QStyleOptionComboBox

Keys = QKeySequence.StandardKey

EDITING: Final = (
    Keys.Undo, Keys.Redo, Keys.Cut, Keys.Copy, Keys.Paste, Keys.SelectAll, Keys.Delete, Keys.DeleteEndOfWord,
)  # fmt: skip
"""Shortcuts that a text field keeps for itself where an action of the window has the same one."""


class _Wheelless:
    def wheelEvent(self, event: QWheelEvent) -> None:  # noqa: N802 (Qt's name)
        event.ignore()


class SpinBox(_Wheelless, QSpinBox):
    """A number field, changed by keys and its arrows only."""

    def __init__(self) -> None:
        super().__init__()
        self.lineEdit().setTextMargins(7, 0, 0, 0)  # the style sheet's padding does not apply to it


class ComboBox(_Wheelless, QComboBox):
    """A choice, changed by keys and its list only."""

    def __init__(self) -> None:
        super().__init__()
        self.setMinimumWidth(90)  # of a narrow window; else the width of its texts

    def fill(self, choices: Iterable[tuple[str, object]], chosen: object = None) -> None:
        """Replace the choices, texts with their data, without a signal; the first is chosen if `chosen` is none."""
        with QSignalBlocker(self):
            self.clear()
            for text, data in choices:
                self.addItem(text, data)
            self.setCurrentIndex(max(self.findData(chosen), 0))

    def initStyleOption(self, option: QStyleOptionComboBox) -> None:  # noqa: N802 (Qt's name)
        """Elide a text that is too long, which Qt would cut."""
        super().initStyleOption(option)
        at = self.style().subControlRect(QStyle.ComplexControl.CC_ComboBox, option,
                                         QStyle.SubControl.SC_ComboBoxEditField, self)  # fmt: skip
        option.currentText = self.fontMetrics().elidedText(self.currentText(), Qt.TextElideMode.ElideRight, at.width())


class Slider(_Wheelless, QSlider):
    """A horizontal slider, moved by keys and its handle only."""

    def __init__(self, name: str, low: int = 0, high: int = 100, value: int = 0) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setAccessibleName(name)
        self.setRange(low, high)
        self.setValue(value)


class SearchField(QLineEdit):
    """A search field that Esc clears, and in which the window's shortcuts work.

    Qt's text fields take some shortcuts from X11 (Ctrl+E moves to the end of the line); only those that edit text are
    kept.
    """

    def __init__(self, hint: str, name: str) -> None:
        super().__init__(placeholderText=hint, clearButtonEnabled=True)
        self.setAccessibleName(name)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride and self._is_of_window(event):
            event.ignore()
            return False
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:  # noqa: N802 (Qt's name)
        if event.key() == Qt.Key.Key_Escape:
            self.clear()
        super().keyPressEvent(event)

    def _is_of_window(self, event: QKeyEvent) -> bool:
        keys = QKeySequence(event.keyCombination())
        return any(action.shortcut() == keys for action in self.window().actions()) and not any(
            event.matches(key) for key in EDITING
        )
