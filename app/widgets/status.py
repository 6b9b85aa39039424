"""The status bar: device and active run."""

from __future__ import annotations

import platform
from typing import final

from PySide6.QtWidgets import QLabel, QStatusBar

from app.translation import tr
from app.widgets.parts import named, progress_bar
from core.cores import usable_cores


@final
class StatusLine(QStatusBar):
    """The device on the right, the run left of it; hints of menus on the left."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizeGripEnabled(False)
        self.run = named(QLabel(), tr("Current run"))
        self.bar = progress_bar(tr("Progress of the run"), 120)
        self.bar.hide()
        self.device = named(QLabel(processor()), tr("Device"))
        for widget in (self.run, self.bar, self.device):
            self.addPermanentWidget(widget)

    def show_run(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show the active run in a few words; nothing if there is none."""
        self.run.setText(text)
        self.bar.setVisible(bool(total))
        self.bar.setMaximum(max(total, 1))
        self.bar.setValue(done)


def processor() -> str:
    """The processor's architecture and how many cores this process may use."""
    return tr("CPU, {n} cores ({name})", n=usable_cores(), name=platform.machine())
