"""Reads photos in separate processes with limits: a hostile photo ends its process, never the program.

All photos of users are decoded here. `prepare` starts a process early.
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
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.child_process import close_child, start_child
from core.cores import usable_cores
from core.data.photo import DAMAGED, SQUARE, TOO_MUCH_MEMORY, PhotoError
from core.data.photo_process import MOST_SECONDS, NO_SPACE, NUMBER, TOO_LARGE, TOO_LONG
from core.errors import LeafClinicError
from core.ops.contract import Array
from core.storage import NO_ROOM, storage_error

TOO_SLOW: Final = (f"Decoding the photo takes longer than {MOST_SECONDS:.0f} s of computing time. Save it as JPEG, or "
                   "make it smaller.")  # fmt: skip
ENDED: Final = "The process that decoded the photo was ended from outside. Try again."
_ENDS = {1: ENDED, TOO_LONG: TOO_SLOW, TOO_LARGE: TOO_MUCH_MEMORY, -signal.SIGTERM: ENDED}
if sys.platform != "win32":
    _ENDS.update({-signal.SIGPROF: TOO_SLOW, -signal.SIGKILL: ENDED})
"""Meaning of the exit codes; any other code means that the photo crashed the decoder."""
END_SECONDS: Final = 5.0
"""Time for an unresponsive process to end by itself."""
KEPT_ROOM: Final = 8 << 20
"""Bytes of the shared file that are kept between two requests: a chunk of squares of 400 pixels."""


@dataclass(frozen=True, slots=True)
class ReadPhoto:
    """The result of reading one file; without pixels if its content is known already or there is a reason.

    content: SHA-256, empty where it was not computed; facts: width and height as the file has them, and when it was
    taken (`core.data.photo_format`); lasting: the content is known, and the reason depends on it alone.
    """

    content: bytes
    pixels: Array | None
    reason: str = ""
    facts: tuple[int, int, int] = (0, 0, 0)
    lasting: bool = True


class PhotoReader:
    """One decoding process, for one caller at a time; `close` ends it."""

    def __init__(self) -> None:
        self._room = _open_room()
        self._start()

    def read(
        self, paths: Sequence[str], side: int, least: int = 0, known: Collection[bytes] | None = None,
        part: str = SQUARE,
    ) -> list[ReadPhoto]:  # fmt: skip
        """The centred squares of photo files, ``(side, side, 3)``, in order.

        A square whose own side is below `least` keeps it, also that of a JPEG scaled while it is decoded. `known`:
        contents that need no pixels; None: no content is hashed. `part`: another part of the photos
        (`core.data.photo.PARTS`); with `side` 0 they keep their size. Raises LeafClinicError if the process cannot be
        started.
        """
        if not paths:
            return []
        paths = [path if os.path.isabs(path) else os.path.join(os.getcwd(), path) for path in paths]
        try:
            return self._read(paths, side, least, known, part)
        except (EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:  # for the shared file
                raise storage_error(Path(tempfile.gettempdir()), error) from error
            idle = self._has_ended_idle()
            reason = self._restart()
            if idle:
                return self.read(paths, side, least, known, part)
        self._room.seek(0)
        (number,) = NUMBER.unpack(self._room.read(NUMBER.size))
        before, after = (self.read(some, side, least, known, part) for some in (paths[:number], paths[number + 1 :]))
        return [*before, ReadPhoto(b"", None, reason, lasting=False), *after]

    def close(self) -> None:
        close_child(self._process)
        self._room.close()

    def _start(self) -> None:
        """Start the process with the shared file as its error output, which is inherited on every system."""
        self._process, self._ready = start_child("photos", self._room), False

    def _read(
        self, paths: Sequence[str], side: int, least: int, known: Collection[bytes] | None, part: str
    ) -> list[ReadPhoto]:
        if self._process.poll() is not None:  # it was ended while idle
            self._restart()
        try:
            self._ready = self._ready or bool(self._receive())
        except EOFError:
            raise LeafClinicError("The process that decodes photos could not start. The computer may have too little "
                                  "memory. Close other programs and try again.") from None
        self._room.seek(0)
        self._room.write(NUMBER.pack(0))
        how = {"side": side, "least": least, "part": part, "hash": known is not None, "ask": bool(known)}
        self._send(how | {"paths": paths})  # absolute: the process keeps the folder in which it was started
        while isinstance(answer := self._receive(), str):  # the content of a photo before it is decoded
            self._send(bytes.fromhex(answer) not in (known or ()))
        sizes = [3 * height * width for _, _, height, width, *_ in answer]
        pixels = self._take_pixels(sum(sizes))
        ends = itertools.accumulate(sizes)
        parts = (pixels[end - size : end] for size, end in zip(sizes, ends, strict=True))
        return [_parse_result(part, *photo) for part, photo in zip(parts, answer, strict=True)]

    def _take_pixels(self, size: int) -> Array:
        pixels = np.empty(size, np.uint8)
        self._room.seek(NUMBER.size)
        if self._room.readinto(pixels.data) < size:
            raise EOFError
        if size > KEPT_ROOM:
            self._room.truncate(KEPT_ROOM)
        return pixels

    def _send(self, request: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)

    def _has_ended_idle(self) -> bool:
        """Whether the process has just ended because it was idle."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(END_SECONDS) == 0
        return False

    def _restart(self) -> str:
        """Start another process and return why this one ended, as a sentence about the photo."""
        close_child(self._process)
        if self._process.returncode == NO_SPACE:
            raise _no_space("a file cannot be written")
        reason = _ENDS.get(self._process.returncode, DAMAGED)
        self._start()
        return reason


def _parse_result(pixels: Array, content: str, reason: str, height: int, width: int, *facts: int) -> ReadPhoto:
    key = bytes.fromhex(content)
    if reason or not height:
        return ReadPhoto(key, None, reason, lasting=bool(content))
    return ReadPhoto(key, pixels.reshape(height, width, 3), "", (facts[0], facts[1], facts[2]))


class PhotoReaders:
    """A pool of at most `most` processes, started on demand and kept until released."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free: queue.LifoQueue[PhotoReader | None] = queue.LifoQueue()  # those that run are on top
        for _ in range(most):
            self._free.put(None)

    @contextmanager
    def borrow(self) -> Iterator[PhotoReader]:
        """Borrow a process exclusively, as soon as one is free."""
        reader = self._free.get()
        try:
            reader = reader or PhotoReader()
            yield reader
        except BaseException:  # perhaps in the middle of a response
            if reader is not None:
                reader.close()
            reader = None
            raise
        finally:
            self._free.put(reader)

    def release(self) -> None:
        """End the idle processes."""
        free = []
        with contextlib.suppress(queue.Empty):
            while True:
                free.append(self._free.get_nowait())
        for reader in free:
            if reader is not None:
                reader.close()
            self._free.put(None)


READERS: Final = PhotoReaders(usable_cores())
"""The pool of this program."""
atexit.register(READERS.release)


def prepare() -> None:
    """Start a process without waiting for it, before a photo is needed."""
    with READERS.borrow():
        pass


def read_file(path: str, side: int, least: int = 0, part: str = SQUARE, hashed: bool = False) -> ReadPhoto:
    """Read one photo file as in `PhotoReader.read`; `reason` states why it cannot be used. hashed: with its content."""
    with READERS.borrow() as reader:
        return reader.read([path], side, least, () if hashed else None, part)[0]


def read_photo(path: str, side: int = 0, least: int = 0, part: str = SQUARE) -> Array:
    """Read one photo file as uint8 RGB pixels. Raises PhotoError."""
    found = read_file(path, side, least, part)
    if found.pixels is None:
        raise PhotoError(found.reason)
    return found.pixels


def _open_room() -> FileIO:
    """An anonymous file, for a process to write pixels to; in memory where the system supports it."""
    try:
        if sys.platform == "linux":
            return open(os.memfd_create("photos"), "r+b", buffering=0)
        return tempfile.TemporaryFile(buffering=0)
    except OSError as error:
        raise _no_space(str(error)) from error


def _no_space(reason: str) -> LeafClinicError:
    return LeafClinicError(f"There is no space for decoded photos ({reason}). Close other programs, free disk space in "
                           f"{tempfile.gettempdir()}, or raise the limit of file sizes (ulimit -f), and try again.")
