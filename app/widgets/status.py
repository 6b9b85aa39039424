"""The status bar: device, memory, and the active run."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path
from typing import Final, final

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QLabel, QStatusBar

from app.translation import tr
from app.widgets.parts import named, progress_bar
from core.cores import usable_cores

REFRESH_MS: Final = 2000


@final
class StatusLine(QStatusBar):
    """Device and memory on the right, the run left of them; hints of menus on the left."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizeGripEnabled(False)
        self.run = named(QLabel(), tr("Current run"))
        self.bar = progress_bar(tr("Progress of the run"), 120)
        self.bar.hide()
        self.device, self.memory = named(QLabel(processor()), tr("Device")), named(QLabel(), tr("Memory"))
        for widget in (self.run, self.bar, self.device, self.memory):
            self.addPermanentWidget(widget)
        self._timer = QTimer(self, interval=REFRESH_MS)
        self._timer.timeout.connect(self._show_memory)
        self._timer.start()
        self._show_memory()

    def show_run(self, text: str, done: int = 0, total: int = 0) -> None:
        """Show the active run in a few words; nothing if there is none."""
        self.run.setText(text)
        self.bar.setVisible(bool(total))
        self.bar.setMaximum(max(total, 1))
        self.bar.setValue(done)

    def stop(self) -> None:
        self._timer.stop()

    def _show_memory(self) -> None:
        found = memory()
        if found:
            used, total = (value / 2**30 for value in found)
            self.memory.setText(tr("Memory {used} of {total} GB", used=f"{used:.1f}", total=f"{total:.1f}"))


def processor() -> str:
    """The processor's architecture and how many cores this process may use."""
    return tr("CPU, {n} cores ({name})", n=usable_cores(), name=platform.machine())


def memory() -> tuple[int, int] | None:
    """(used, total) bytes of this computer's memory, or None if unknown."""
    if hasattr(ctypes, "windll"):
        return _windows_memory()
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        values = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return values["MemTotal"] - values["MemAvailable"], values["MemTotal"]
    except (OSError, KeyError, ValueError):
        return None


class _Status(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", "page", "page_free", "space", "space_free", "more")),
    )


def _windows_memory() -> tuple[int, int] | None:
    status = _Status(length=ctypes.sizeof(_Status))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined]  # Windows only
        return None
    return status.total - status.free, status.total
