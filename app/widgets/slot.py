"""Functions as slots that end with the widget they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from PySide6.QtCore import QObject


@final
class Slot(QObject):
    """Connect `call` where the sender lives longer than `owner`: Qt disconnects it when the owner is deleted, and with
    it a function, which Qt knows no owner of, would go on to be called."""

    def __init__(self, owner: QObject, function: Callable[..., object]) -> None:
        super().__init__(owner)
        self._function = function

    def call(self, *values: object) -> None:
        self._function(*values)
