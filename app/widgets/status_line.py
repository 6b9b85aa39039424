"""The status bar: the active run, the device and the computer's memory."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path
from typing import Final

from PySide6.QtCore import QTimerEvent
from PySide6.QtWidgets import QLabel, QStatusBar

from app.translation import tr
from app.widgets.parts import named, progress_bar
from core.cores import usable_cores

REFRESH_MS: Final = 2000
"""Interval of updates of the memory in use."""


class StatusLine(QStatusBar):
    """The device and the computer's memory on the right, the run left of them; hints of menus on the left."""

    def __init__(self) -> None:
        super().__init__(sizeGripEnabled=False)
        self.run = named(QLabel(), tr("Current run"))
        self.bar = progress_bar(tr("Progress of the run"), 120)
        self.bar.hide()
        device = tr("CPU, {n} cores ({name})", n=usable_cores(), name=platform.machine())
        self.device, self.memory = named(QLabel(device), tr("Device")), named(QLabel(), tr("Memory"))
        for widget in (self.run, self.bar, self.device, self.memory):
            self.addPermanentWidget(widget)
        self._show_memory()
        self.startTimer(REFRESH_MS)

    def show_run(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show the active run in a few words; nothing if there is none."""
        self.run.setText(text)
        self.bar.setVisible(bool(total))
        self.bar.setMaximum(max(total, 1))
        self.bar.setValue(done)

    def timerEvent(self, event: QTimerEvent) -> None:  # noqa: N802
        self._show_memory()

    def _show_memory(self) -> None:
        if found := memory_in_use():
            used, total = (f"{size / 2**30:.1f}" for size in found)
            self.memory.setText(tr("Memory {used} of {total} GB", used=used, total=total))


def memory_in_use() -> tuple[int, int] | None:
    """(used, total) bytes of this computer's memory; None where the system does not say so, as on macOS."""
    if sys.platform == "win32":
        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size, total and available bytes, five more
        ctypes.windll.kernel32.GlobalMemoryStatusEx(status)
        return status[1] - status[2], status[1]
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemTotal"] - sizes["MemAvailable"], sizes["MemTotal"]
    except (OSError, KeyError, ValueError):
        return None
