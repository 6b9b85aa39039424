"""Asks where to save a file, which is never inside a folder of photos that was opened."""

from __future__ import annotations

from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from app.paths import PHOTO_FOLDERS
from app.translation import sentence
from core.storage import inside_photos


def ask_target(parent: QWidget, title: str, start: str, kinds: str) -> tuple[str, str]:
    """The file to write and the chosen one of `kinds`; "" if cancelled, or refused with a message."""
    chosen, kind = QFileDialog.getSaveFileName(parent, title, start, kinds)
    if not (refusal := inside_photos(chosen, PHOTO_FOLDERS)):
        return chosen, kind
    QMessageBox(QMessageBox.Icon.Warning, title, sentence(refusal), parent=parent).open()
    return "", ""
