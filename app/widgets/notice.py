"""A message line across a page, with one suggested next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QPushButton

from app import resources
from app.theme import Theme
from app.translation import sentence, tr
from app.widgets.parts import button, label


@final
class Notice(QFrame):
    """Hidden without a message. `do` is the button of the next step, `copy` copies the details."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme, self._details = theme, ""
        self._act: Callable[[], object] | None = None
        self._icon = QLabel()
        self.text = label("", wrap=True)
        self.do = QPushButton()
        self.do.setProperty("role", "primary")
        self.do.clicked.connect(self._on_do)
        self.do.hide()
        self.copy = button(tr("Copy details"), self._on_copy, "flat", tr("Copy the technical details"))
        self.dismiss = button(tr("Close"), self.hide, "flat")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(12, 8, 8, 8)
        layout.setSpacing(10)
        layout.addWidget(self._icon)
        layout.addWidget(self.text, 1)
        for widget in (self.do, self.copy, self.dismiss):
            layout.addWidget(widget)
        self.hide()

    def show_message(self, text: str, verb: str = "", act: Callable[[], object] | None = None) -> None:
        """Show a success or a neutral message."""
        self._show("notice", "check", self._theme.colours.accent, text, verb, act, "")

    def alarm(self, text: str, details: str = "", verb: str = "", act: Callable[[], object] | None = None) -> None:
        """Show an error as a sentence, from the window or from core."""
        self._show("alarm", "warning", self._theme.colours.danger, sentence(text), verb, act, details)

    def hide_alarm(self) -> None:
        """Hide an error that the user has just overcome; other messages stay."""
        if self.property("role") == "alarm":
            self.hide()

    def _show(
        self, role: str, icon: str, colour: str, text: str, verb: str, act: Callable[[], object] | None, details: str
    ) -> None:
        self.setProperty("role", role)
        self.style().polish(self)
        self._icon.setPixmap(resources.pixmap(icon, colour, 20, self.devicePixelRatioF()))
        self.text.setText(text)
        self.setAccessibleName(text)
        self._act, self._details = act, details
        self.do.setText(verb)
        self.do.setVisible(bool(verb and act))
        self.copy.setVisible(bool(details))
        self.show()

    def _on_do(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()

    def _on_copy(self) -> None:
        QApplication.clipboard().setText(f"{self.text.text()}\n\n{self._details}")
