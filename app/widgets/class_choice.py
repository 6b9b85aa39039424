"""The dialog that asks for a class, by its display name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from PySide6.QtWidgets import QInputDialog, QWidget

from app.cards import disease_name
from app.translation import tr


def ask_class(parent: QWidget, classes: Iterable[str], now: str = "") -> str:
    """The class chosen or typed, "" if the dialog was cancelled; `now` is preselected.

    Classes with the same display name are listed by their own names.
    """
    known = sorted(classes)
    shown = Counter(map(disease_name, known))
    names = [disease_name(name) if shown[disease_name(name)] == 1 else name for name in known]
    text = tr("Class (a new name creates a class):")
    first = known.index(now) if now in known else 0
    name, fine = QInputDialog.getItem(parent, tr("Move to class"), text, names, first)
    return name if fine else ""
