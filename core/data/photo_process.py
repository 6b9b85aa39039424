"""A process that decodes photos from anybody: paths come in on its standard input, pixels go to its error output.

A hostile photo can make decoders allocate gigabytes, compute for minutes or crash. Here that ends this process, which
`core.data.photo_reader` then reports and starts again. It imports little, so that it is ready soon, and ends when its
input ends, so that none outlives the program that started it, or when nothing has been asked for a minute.

Questions and answers are lines of JSON. A question: {"side", "least", "ask", "paths"}; the answer: [[SHA-256, reason,
height, width of the pixels, width, height of the file's photo, when it was taken], ...]. The error output is a file
that both sides have open; it holds the number of the photo that is decoded, then the pixels of all photos. Where "ask"
is set, each SHA-256 is sent as a line of its own before the photo is decoded, and answered by a line: true if its
pixels are wanted.
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

from core.data.exif import taken_at
from core.data.photo import TOO_MUCH_MEMORY, PhotoError, check, content_key, decode_checked, read_bytes
from core.data.photo_limits import Limits

if TYPE_CHECKING:
    from core.ops.contract import Array

NAME: Final = "photos"
"""Of this process, where the program is a folder without Python (`app.processes.entry`)."""
MODULE: Final = "core.data.photo_process"
IDLE_SECONDS: Final = 60.0
"""A process that nobody asks for so long ends, and gives its memory back; another is started when it is needed."""
NUMBER: Final = struct.Struct("<Q")
"""At the beginning of the shared file: which photo of the question it is that costs too much."""
NOTHING: Final = np.empty((0, 0, 3), np.uint8)


@final
@dataclass(frozen=True, slots=True)
class Decoder:
    """The process's three streams, and what one photo may cost."""

    questions: BinaryIO
    answers: BinaryIO
    room: BinaryIO
    limits: Limits

    def serve(self) -> None:
        """Answer until the input ends, or nothing has been asked for a while."""
        self._say(True)  # ready
        while self._is_asked() and (line := self.questions.readline()):
            asked = json.loads(line)
            at, found = NUMBER.size, []
            for number, path in enumerate(asked["paths"]):
                self.room.seek(0)
                self.room.write(NUMBER.pack(number))
                self.room.seek(at)
                found.append(self._read(path, asked))
                at = self.room.tell()
            self._say(found)

    def _read(self, path: str, asked: dict[str, Any]) -> list[Any]:
        """What became of a photo; its pixels are written."""
        content, reason, facts, pixels = "", "", (0, 0, 0), NOTHING
        try:
            data = read_bytes(path)
            content = content_key(data).hex()
            if not asked["ask"] or self._is_wanted(content):
                with self.limits:
                    facts, pixels = _decode(data, asked["side"], asked["least"])
        except PhotoError as error:
            reason = str(error)
        except MemoryError:
            reason = TOO_MUCH_MEMORY
        self.room.write(pixels.data)
        return [content, reason, *pixels.shape[:2], *facts]

    def _is_asked(self) -> bool:
        """True if there is a question before the time is over, or the input has ended."""
        if os.name == "nt":  # which cannot wait for a pipe and a clock at once
            return True
        return bool(select.select([self.questions], [], [], IDLE_SECONDS)[0])

    def _is_wanted(self, content: str) -> bool:
        self._say(content)
        return bool(json.loads(self.questions.readline()))

    def _say(self, answer: object) -> None:
        self.answers.write(json.dumps(answer).encode() + b"\n")
        self.answers.flush()


def _decode(data: Array, side: int, least: int) -> tuple[tuple[int, int, int], Array]:
    header = check(data)
    short = min(header.width, header.height)
    facts = (header.width, header.height, taken_at(data))
    return facts, decode_checked(data, header, short if 0 < short < least else side)


def main() -> int:
    """Be the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the affair of who started it
    cv2.setNumThreads(1)  # photos are decoded side by side by several processes
    with os.fdopen(0, "rb", closefd=False) as questions, os.fdopen(os.dup(1), "wb") as answers:
        room = os.fdopen(os.dup(2), "wb", buffering=0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # whatever a library prints
            os.dup2(nowhere, stream)
        with room, contextlib.suppress(BrokenPipeError, ValueError):  # nobody wants to know any more
            Decoder(questions, answers, room, Limits()).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
