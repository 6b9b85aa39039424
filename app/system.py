"""Information on this computer for the window, without loading the engine."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

from app.translation import tr
from core.cores import usable_cores


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
