"""The user guide, shown offline."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QUrl
from PySide6.QtWidgets import QDialog, QTextBrowser, QVBoxLayout, QWidget

from app import resources, translation
from app.translation import tr
from app.widgets.parts import button, fit, row


@final
class GuideDialog(QDialog):
    """Pages and pictures are files of the program; links to the internet are not followed."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("User guide"))
        fit(self, 820, 680)
        self.page = QTextBrowser()
        self.page.setObjectName("guide")
        self.page.setAccessibleName(tr("User guide"))
        self.page.document().setBaseUrl(QUrl.fromLocalFile(f"{resources.place('guide')}/"))
        self.page.setMarkdown(resources.text(f"guide/{translation.language()}.md"))
        layout = QVBoxLayout(self)
        layout.addWidget(self.page, 1)
        layout.addLayout(row(None, button(tr("Close"), self.accept)))
