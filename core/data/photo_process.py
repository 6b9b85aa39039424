"""The process that decodes untrusted photos: reads paths from standard input, writes pixels to its error output.

A hostile photo can make decoders allocate gigabytes, compute for minutes or crash. Here that ends this process, which
`core.data.photo_reader` then reports and starts again. Linux enforces the limits on memory and computing time in the
kernel. On macOS and Windows, which have no such limits for a process itself, a thread checks 50 times a second. The
process imports little, so that it starts fast. It ends when its input ends, or after a minute without requests.

Requests and responses are lines of JSON. A request: {"side", "least", "part", "hash", "ask", "paths"}; the response:
[[SHA-256, reason, height, width of the pixels, width, height of the file's photo, when it was taken], ...]. The error
output is a file that both sides have open; it holds the number of the photo that is decoded, then the pixels of all
photos. Without "hash", each SHA-256 is empty. Where "ask" is set, it is sent as a line before the photo is decoded; the
reader replies with a line: true if it needs the pixels.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

import cv2
import numpy as np

from core.data.photo import TOO_MUCH_MEMORY, PhotoError, check, decode, read_bytes
from core.data.photo_format import taken_at

MOST_BYTES: Final = 600_000_000
"""Memory of the process, in bytes."""
MOST_SECONDS: Final = 2.0
"""Processor seconds (not wall clock, so that a busy computer rejects no good photo) to decode one photo. A PNG of 48
megapixels takes 1.7."""
TOO_LONG: Final = 71
TOO_LARGE: Final = 72
"""Exit codes where a thread ends the process."""
NO_SPACE: Final = 73
"""Exit code where the pixels cannot be written."""
POLL_SECONDS: Final = 0.02
IDLE_SECONDS: Final = 60.0
"""An idle process ends after this time and frees its memory; another is started when needed."""
NUMBER: Final = struct.Struct("<Q")
"""At the start of the shared file: the index of the photo being decoded."""
NOTHING: Final = np.empty((0, 0, 3), np.uint8)


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


@dataclass(frozen=True, slots=True)
class Decoder:
    """The streams of the process and the limits per photo."""

    questions: BinaryIO
    answers: BinaryIO
    room: BinaryIO
    limits: Limits

    def serve(self) -> None:
        """Serve requests until the input ends or the process has been idle for IDLE_SECONDS."""
        self._send(True)  # ready
        while self._is_asked() and (line := self.questions.readline()):
            asked = json.loads(line)
            at, found = NUMBER.size, []
            for number, path in enumerate(asked["paths"]):
                self.room.seek(0)
                self.room.write(NUMBER.pack(number))
                self.room.seek(at)
                found.append(self._read(path, asked))
                at = self.room.tell()
            self._send(found)

    def _read(self, path: str, asked: dict[str, Any]) -> list[Any]:
        """Read a photo, write its pixels and return its part of the response."""
        content, reason, facts, pixels = "", "", (0, 0, 0), NOTHING
        try:
            data = read_bytes(path)
            content = sha256(data.data).hexdigest() if asked["hash"] else ""
            if not asked["ask"] or self._is_wanted(content):
                with self.limits:
                    header = check(data)
                    facts = header.width, header.height, taken_at(data)
                    pixels = decode(data, asked["side"], asked["part"], header, asked["least"])
        except PhotoError as error:
            reason = str(error)
        except MemoryError:
            reason = TOO_MUCH_MEMORY
        if self.room.write(pixels.data) < pixels.nbytes:
            raise OSError("The disk is full, or file sizes are limited.")
        return [content, reason, *pixels.shape[:2], *facts]

    def _is_asked(self) -> bool:
        """Wait for a request or the end of the input; False after the time limit."""
        if os.name == "nt":  # which cannot wait for a pipe and a clock at once
            return True
        return bool(select.select([self.questions], [], [], IDLE_SECONDS)[0])

    def _is_wanted(self, content: str) -> bool:
        self._send(content)
        return bool(json.loads(self.questions.readline()))

    def _send(self, response: object) -> None:
        self.answers.write(json.dumps(response).encode() + b"\n")
        self.answers.flush()


def main() -> int:
    cv2.setNumThreads(1)  # several processes decode in parallel
    with os.fdopen(0, "rb", closefd=False) as questions, os.fdopen(os.dup(1), "wb") as answers:
        room = os.fdopen(os.dup(2), "wb", buffering=0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # output of libraries
            os.dup2(nowhere, stream)
        try:
            with room, contextlib.suppress(BrokenPipeError, ValueError):  # the reader is gone
                Decoder(questions, answers, room, Limits()).serve()
        except OSError:
            return NO_SPACE
    return 0


if __name__ == "__main__":
    sys.exit(main())
