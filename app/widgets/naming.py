"""What a screen reader calls a control: one name for it and for the parts that Qt makes it of."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtWidgets import QComboBox, QSpinBox, QTabWidget, QWidget

W = TypeVar("W", bound=QWidget)


def named(widget: W, name: str) -> W:
    """The widget with its name, also on the list of a choice, the line of a number and the bar of tabs."""
    widget.setAccessibleName(name)
    if isinstance(widget, QComboBox):
        widget.view().setAccessibleName(name)
    elif isinstance(widget, QSpinBox):
        widget.lineEdit().setAccessibleName(name)
    elif isinstance(widget, QTabWidget):
        widget.tabBar().setAccessibleName(name)
    return widget
