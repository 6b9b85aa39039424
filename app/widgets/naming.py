"""Accessible names of controls and of the parts that Qt makes them of."""

from __future__ import annotations

from typing import TypeVar

from PySide6.QtWidgets import QComboBox, QSpinBox, QTabWidget, QWidget

W = TypeVar("W", bound=QWidget)


def named(widget: W, name: str) -> W:
    """The widget with its accessible name, also on its list, line edit and tab bar."""
    widget.setAccessibleName(name)
    if isinstance(widget, QComboBox):
        widget.view().setAccessibleName(name)
    elif isinstance(widget, QSpinBox):
        widget.lineEdit().setAccessibleName(name)
    elif isinstance(widget, QTabWidget):
        widget.tabBar().setAccessibleName(name)
    return widget
