"""Photos read from files in processes with little memory and time: one bad photo ends its process, never the program.

Whatever decodes a user's photo goes through here. A process is ready 0.2 s after it was started: who will need one
soon calls `prepare`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import Any, Final, final

import numpy as np

from core.cores import usable_cores
from core.data.photo import DAMAGED, TOO_MUCH_MEMORY, PhotoError
from core.data.photo_limits import MOST_SECONDS, TOO_LARGE, TOO_LONG
from core.data.photo_process import MODULE, NAME, NUMBER
from core.errors import LeafClinicError
from core.ops.contract import Array
from core.pipe_process import close_child, start_child

TOO_SLOW: Final = (f"Decoding the photo takes longer than {MOST_SECONDS:.0f} s of computing time. Save it as JPEG, or "
                   "make it smaller.")  # fmt: skip
ENDED: Final = "The process that decoded the photo was ended from outside. Try again."
_ENDS = {1: ENDED, TOO_LONG: TOO_SLOW, TOO_LARGE: TOO_MUCH_MEMORY, -signal.SIGTERM: ENDED}
if sys.platform != "win32":
    _ENDS.update({-signal.SIGPROF: TOO_SLOW, -signal.SIGKILL: ENDED})
"""What it means that a process ended with this code; otherwise the file has crashed the decoder."""
END_SECONDS: Final = 5.0
"""How long a process that answers no more may take to end by itself."""
KEPT_ROOM: Final = 8 << 20
"""Bytes of a process's shared file that are kept between two questions: a chunk of squares of 400 pixels."""


@final
@dataclass(frozen=True, slots=True)
class ReadPhoto:
    """What became of one file; no pixels where its content was known already, or there is a reason.

    content: SHA-256, empty where the file could not be read; facts: width and height as the file has them, and when it
    was taken (`core.data.exif`); lasting: the reason lies in the content alone.
    """

    content: bytes
    pixels: Array | None
    reason: str = ""
    facts: tuple[int, int, int] = (0, 0, 0)
    lasting: bool = True


@final
class PhotoReader:
    """One process that decodes. One caller at a time; close it to end the process."""

    def __init__(self) -> None:
        self._room = _open_room()
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(
        self, paths: Sequence[str], side: int, least: int = 0, known: Collection[bytes] = ()
    ) -> list[ReadPhoto]:
        """The centred squares of photo files, ``(side, side, 3)``, in order; no pixels where `known` has the content.

        A square whose own side is below `least` keeps it; where `side` is 0, photos are read whole. Raises
        LeafClinicError where the process cannot be started.
        """
        if not paths:
            return []
        try:
            return self._read(paths, side, least, known)
        except (EOFError, OSError):
            idle = self._has_ended_idle()
            reason = self._restart()
            if idle:
                return self.read(paths, side, least, known)
        self._room.seek(0)
        (number,) = NUMBER.unpack(self._room.read(NUMBER.size))
        before, after = (self.read(part, side, least, known) for part in (paths[:number], paths[number + 1 :]))
        return [*before, ReadPhoto(b"", None, reason, lasting=False), *after]

    def close(self) -> None:
        close_child(self._process)
        self._room.close()

    def _start(self) -> None:
        """The process has the shared file as its error output: that is handed on alike on every system."""
        self._process, self._ready = start_child(NAME, MODULE, self._room), False

    def _read(self, paths: Sequence[str], side: int, least: int, known: Collection[bytes]) -> list[ReadPhoto]:
        if self._process.poll() is not None:  # it was ended while it had nothing to do
            self._restart()
        if not self._ready:
            self._wait_until_ready()
        self._room.seek(0)
        self._room.write(NUMBER.pack(0))
        ask = bool(known)
        self._say({"side": side, "least": least, "ask": ask, "paths": list(paths)})
        while isinstance(answer := self._hear(), str):  # the content of a photo before it is decoded
            self._say(bytes.fromhex(answer) not in known)
        sizes = [3 * height * width for _, _, height, width, *_ in answer]
        pixels = self._take_pixels(sum(sizes))
        ends = itertools.accumulate(sizes)
        parts = (pixels[end - size : end] for size, end in zip(sizes, ends, strict=True))
        return [_read_answer(part, *photo) for part, photo in zip(parts, answer, strict=True)]

    def _take_pixels(self, size: int) -> Array:
        pixels = np.empty(size, np.uint8)
        self._room.seek(NUMBER.size)
        if self._room.readinto(pixels.data) < size:
            raise EOFError
        if size > KEPT_ROOM:
            self._room.truncate(KEPT_ROOM)
        return pixels

    def _wait_until_ready(self) -> None:
        try:
            self._ready = bool(self._hear())
        except EOFError:
            raise LeafClinicError("The process that decodes photos could not start. Perhaps the memory is short: "
                                  "close other programs and start again.") from None

    def _say(self, question: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)

    def _has_ended_idle(self) -> bool:
        """True if the process ended because nothing had been asked for long, just when this was."""
        try:
            return self._process.wait(END_SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False

    def _restart(self) -> str:
        """Why the process ended, as a sentence about the photo; another takes its place."""
        close_child(self._process)
        reason = _ENDS.get(self._process.returncode, DAMAGED)
        self._start()
        return reason


def _read_answer(pixels: Array, content: str, reason: str, height: int, width: int, *facts: int) -> ReadPhoto:
    key = bytes.fromhex(content)
    if reason or not height:
        return ReadPhoto(key, None, reason, lasting=bool(content))
    return ReadPhoto(key, pixels.reshape(height, width, 3), "", (facts[0], facts[1], facts[2]))


@final
class PhotoReaders:
    """At most so many processes, each started when it is needed first; they wait for more until they are released."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free: queue.LifoQueue[PhotoReader | None] = queue.LifoQueue()  # those that run are on top
        for _ in range(most):
            self._free.put(None)

    @contextmanager
    def borrow(self) -> Iterator[PhotoReader]:
        """A process for this caller alone, as soon as one is free."""
        reader = self._free.get()
        try:
            reader = reader or PhotoReader()
            yield reader
        except BaseException:  # in the middle of an answer, perhaps
            if reader is not None:
                reader.close()
            reader = None
            raise
        finally:
            self._free.put(reader)

    def release(self) -> None:
        """End the processes that are not in use."""
        free = []
        with contextlib.suppress(queue.Empty):
            while True:
                free.append(self._free.get_nowait())
        for reader in free:
            if reader is not None:
                reader.close()
            self._free.put(None)


READERS: Final = PhotoReaders(usable_cores())
"""This program's."""
atexit.register(READERS.release)


def prepare() -> None:
    """Start a process now, without waiting for it, for who will read a photo soon."""
    with READERS.borrow():
        pass


def read_file(path: str, side: int, least: int = 0) -> ReadPhoto:
    """One photo file, as `PhotoReader.read` says; its reason says why it cannot be used."""
    with READERS.borrow() as reader:
        return reader.read([path], side, least)[0]


def read_photo(path: str, side: int = 0, least: int = 0) -> Array:
    """The same as uint8 RGB pixels. Raises PhotoError."""
    found = read_file(path, side, least)
    if found.pixels is None:
        raise PhotoError(found.reason)
    return found.pixels


def _open_room() -> FileIO:
    """A file without a name, for a process to write pixels to; in memory where the system has such files."""
    try:
        if sys.platform == "linux":
            return open(os.memfd_create("photos"), "r+b", buffering=0)
        return tempfile.TemporaryFile(buffering=0)
    except OSError as error:
        raise LeafClinicError(f"There is no room to decode photos ({error}). Close other programs, or make room in "
                              f"{tempfile.gettempdir()}, and start again.") from error
