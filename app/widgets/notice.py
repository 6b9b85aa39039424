"""A line across a place that tells how something ended, with the one thing to do next."""

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
    """Hidden until there is something to tell. `do` is the button of the next step, `copy` copies the details."""

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

    def tell(self, text: str, verb: str = "", act: Callable[[], object] | None = None) -> None:
        """Good news or neutral ones."""
        self._show("notice", "check", self._theme.colours.accent, text, verb, act, "")

    def alarm(self, text: str, details: str = "", verb: str = "", act: Callable[[], object] | None = None) -> None:
        """Something went wrong; says it in a sentence, of the window's or of core's."""
        self._show("alarm", "warning", self._theme.colours.danger, sentence(text), verb, act, details)

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
