"""The process that decodes untrusted photos: reads paths from standard input, writes pixels to its error output.

A hostile photo can make decoders allocate gigabytes, compute for minutes or crash. Here that ends this process, which
`core.data.photo_reader` then reports and starts again. It imports little, so that it starts fast. It ends when
its input ends, so that it does not outlive the program, or after a minute without requests.

Requests and responses are lines of JSON. A request: {"side", "least", "part", "ask", "paths"}; the response:
[[SHA-256, reason, height, width of the pixels, width, height of the file's photo, when it was taken], ...]. The error
output is a file that both sides have open; it holds the number of the photo that is decoded, then the pixels of all
photos. Where "ask" is set, each SHA-256 is sent as a line before the photo is decoded; the reader replies with a line:
true if it needs the pixels.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, final

import cv2
import numpy as np

from core.data.photo import TOO_MUCH_MEMORY, PhotoError, check, content_key, decode_checked, read_bytes
from core.data.photo_format import taken_at
from core.data.photo_limits import Limits

if TYPE_CHECKING:
    from core.ops.contract import Array

NAME: Final = "photos"
"""Of this process, where the program is a folder without Python (`app.processes.entry`)."""
MODULE: Final = "core.data.photo_process"
IDLE_SECONDS: Final = 60.0
"""An idle process ends after this time and frees its memory; another is started when needed."""
NUMBER: Final = struct.Struct("<Q")
"""At the start of the shared file: the index of the photo being decoded."""
NOTHING: Final = np.empty((0, 0, 3), np.uint8)


@final
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
            content = content_key(data).hex()
            if not asked["ask"] or self._is_wanted(content):
                with self.limits:
                    facts, pixels = _decode(data, asked["side"], asked["least"], asked["part"])
        except PhotoError as error:
            reason = str(error)
        except MemoryError:
            reason = TOO_MUCH_MEMORY
        self.room.write(pixels.data)
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


def _decode(data: Array, side: int, least: int, part: str) -> tuple[tuple[int, int, int], Array]:
    header = check(data)
    short = min(header.width, header.height)
    facts = (header.width, header.height, taken_at(data))
    return facts, decode_checked(data, header, short if 0 < short < least else side, part)


def main() -> int:
    """Run the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    cv2.setNumThreads(1)  # several processes decode in parallel
    with os.fdopen(0, "rb", closefd=False) as questions, os.fdopen(os.dup(1), "wb") as answers:
        room = os.fdopen(os.dup(2), "wb", buffering=0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # output of libraries
            os.dup2(nowhere, stream)
        with room, contextlib.suppress(BrokenPipeError, ValueError):  # the reader is gone
            Decoder(questions, answers, room, Limits()).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
