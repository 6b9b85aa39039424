"""Limits the memory and computing time of a process that decodes photos; a process over the limits ends at once.

Linux enforces both in the kernel: allocations beyond the limit fail, and a timer of computing time ends the process.
On macOS and Windows, which have no such limits for a process itself, a thread checks 50 times a second.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final, final

MOST_BYTES: Final = 600_000_000
"""Memory of the process, in bytes."""
MOST_SECONDS: Final = 2.0
"""Processor seconds (not wall clock, so that a busy computer rejects no good photo) to decode one photo. A PNG of 48
megapixels takes 1.7."""
TOO_LONG: Final = 71
TOO_LARGE: Final = 72
"""Exit codes where a thread ends the process."""
POLL_SECONDS: Final = 0.02


@final
class Limits:
    """Limits of this process from now on; decode each photo within ``with limits:``."""

    def __init__(self) -> None:
        self._begun = 0.0
        self._busy = threading.Event()
        if sys.platform == "linux":
            _limit_memory()
        else:
            threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> None:
        if sys.platform == "linux":
            signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        else:
            self._begun = time.process_time()
            self._busy.set()

    def __exit__(self, *error: object) -> None:
        if sys.platform == "linux":
            signal.setitimer(signal.ITIMER_PROF, 0)
        else:
            self._busy.clear()

    def _watch(self) -> None:
        while True:
            self._busy.wait()
            time.sleep(POLL_SECONDS)
            if self._busy.is_set() and time.process_time() - self._begun > MOST_SECONDS:
                os._exit(TOO_LONG)
            if memory_in_use() > MOST_BYTES:
                os._exit(TOO_LARGE)


def _limit_memory() -> None:
    """Let the address space grow by as much as the resident memory may: much of it is mapped libraries."""
    import resource

    size, resident = (int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()[:2])
    most = size + MOST_BYTES - resident
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a photo that ends the process leaves no file behind


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    class _Counters(ctypes.Structure):
        """PROCESS_MEMORY_COUNTERS of psapi.h."""

        _fields_ = (("cb", wintypes.DWORD), ("page_faults", wintypes.DWORD), *((name, ctypes.c_size_t) for name in (
            "peak_working_set", "working_set", "peak_paged_pool", "paged_pool", "peak_other_pool", "other_pool",
            "pagefile", "peak_pagefile")))  # fmt: skip

    def memory_in_use() -> int:
        """Memory of this process in bytes, current or peak; 0 if unknown."""
        counters = _Counters(cb=ctypes.sizeof(_Counters))
        kernel = ctypes.WinDLL("kernel32")
        kernel.GetCurrentProcess.restype = wintypes.HANDLE
        kernel.K32GetProcessMemoryInfo.argtypes = (wintypes.HANDLE, ctypes.POINTER(_Counters), wintypes.DWORD)
        kernel.K32GetProcessMemoryInfo(kernel.GetCurrentProcess(), ctypes.byref(counters), counters.cb)
        return int(counters.pagefile)

else:

    def memory_in_use() -> int:
        """Memory of this process in bytes, current or peak; 0 if unknown."""
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
