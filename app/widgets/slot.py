"""Functions as slots that are disconnected with their widget."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from PySide6.QtCore import QObject


@final
class Slot(QObject):
    """Connect `call` if the sender lives longer than `owner`: Qt disconnects it when the owner is deleted.

    A plain function has no owner and would still be called.
    """

    def __init__(self, owner: QObject, function: Callable[..., object]) -> None:
        super().__init__(owner)
        self._function = function

    def call(self, *values: object) -> None:
        self._function(*values)
