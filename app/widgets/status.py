"""The status bar: device, memory, and the active run."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QLabel, QProgressBar, QStatusBar

from app import system
from app.translation import tr

REFRESH_MS: Final = 2000


@final
class StatusLine(QStatusBar):
    """Device and memory on the right, the run left of them; hints of menus on the left."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizeGripEnabled(False)
        self.run = QLabel()
        self.run.setAccessibleName(tr("Current run"))
        self.bar = QProgressBar()
        self.bar.setFixedWidth(120)
        self.bar.setTextVisible(False)
        self.bar.hide()
        self.device = QLabel(system.processor())
        self.device.setAccessibleName(tr("Device"))
        self.memory = QLabel()
        self.memory.setAccessibleName(tr("Memory"))
        for widget in (self.run, self.bar, self.device, self.memory):
            self.addPermanentWidget(widget)
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._show_memory)
        self._timer.start()
        self._show_memory()

    def show_run(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show the active run in a few words; nothing if there is none."""
        self.run.setText(text)
        self.bar.setVisible(bool(total))
        self.bar.setMaximum(max(total, 1))
        self.bar.setValue(done)

    def show_device(self, text: str) -> None:
        self.device.setText(text)

    def stop(self) -> None:
        self._timer.stop()

    def _show_memory(self) -> None:
        found = system.memory()
        if found:
            used, total = (value / 2**30 for value in found)
            self.memory.setText(tr("Memory {used} of {total} GB", used=f"{used:.1f}", total=f"{total:.1f}"))
