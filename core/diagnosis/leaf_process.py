"""The process that finds leaf masks: reads photos from standard input, writes packed masks to standard output.

On many cores processes are faster than threads: a mask takes many short calls, between which threads wait for the
interpreter lock. The process ends when its input ends, so that it does not outlive the program.
"""

from __future__ import annotations

import os
import queue
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import BinaryIO, Final

import cv2
import numpy as np

from core.child_process import close_child, start_child
from core.diagnosis.context_features import compute_context
from core.diagnosis.pixel_features import SIDE
from core.diagnosis.segmentation import segment
from core.errors import LeafClinicError
from core.ops.contract import Array

_SIZE: Final = struct.Struct("<II")
"""Height and width, before the photo's bytes."""
MOST: Final = 16
"""Largest number of processes; each takes about 190 MB."""
FEWEST_CORES: Final = 4
"""Smallest number of cores; with fewer, threads are as fast."""
PER_PROCESS: Final = 200
"""Smallest number of photos per process: with fewer, starting it takes longer than it saves."""


def pack_leaf(photo: Array) -> Array:
    """The mask of the leaf, eight pixels of a row per byte: uint8 ``(height, ceil(width / 8))``."""
    return np.packbits(segment(photo).leaf, axis=-1)


class LeafProcess:
    """One process, for one caller at a time; `close` ends it."""

    def __init__(self) -> None:
        self._process = start_child("leaves")

    def pack(self, photo: Array) -> Array:
        """`pack_leaf` in the process. Raises LeafClinicError if it has ended."""
        height, width = photo.shape[:2]
        wanted = (height, (width + 7) // 8)
        question, answer = self._process.stdin, self._process.stdout
        assert question is not None
        assert answer is not None
        try:
            question.write(_SIZE.pack(height, width) + photo.tobytes())
            question.flush()
            data = answer.read(wanted[0] * wanted[1])
        except OSError:
            data = b""
        if len(data) != wanted[0] * wanted[1]:
            code = self._process.wait()
            raise LeafClinicError(f"The process that finds leaves ended unexpectedly (exit code {code}). The computer "
                                  "may have run out of memory. Close other programs and try again.")
        return np.frombuffer(data, np.uint8).reshape(wanted)

    def close(self) -> None:
        close_child(self._process)


def choose_processes(photos: int, cores: int) -> int:
    """The number of processes for this many photos; 0: threads of this process."""
    many = min(cores, MOST, photos // PER_PROCESS)
    return many if cores >= FEWEST_CORES and many > 1 else 0


@contextmanager
def packing(processes: int) -> Iterator[Callable[[Array], Array]]:
    """`pack_leaf` for threads to call, executed by `processes` processes (0: this one), which end with the block."""
    if not processes:
        yield pack_leaf
        return
    compute_context(np.zeros((SIDE, SIDE, 3), np.uint8))  # compiles kernels here, rather than in each process
    free: queue.SimpleQueue[LeafProcess] = queue.SimpleQueue()
    with ExitStack() as opened:
        for _ in range(processes):
            free.put(opened.enter_context(closing(LeafProcess())))

        def pack(photo: Array) -> Array:
            process = free.get()
            try:
                return process.pack(photo)
            finally:
                free.put(process)

        yield pack


def main() -> int:
    """Run the process until its input ends."""
    cv2.setNumThreads(1)  # there are as many processes as cores
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries
    with os.fdopen(0, "rb", closefd=False) as questions:
        while (photo := _read(questions)) is not None:
            try:
                answers.write(pack_leaf(photo).tobytes())
                answers.flush()
            except BrokenPipeError:
                break  # the parent is gone
    return 0


def _read(questions: BinaryIO) -> Array | None:
    head = questions.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    height, width = _SIZE.unpack(head)
    data = questions.read(height * width * 3)
    return np.frombuffer(data, np.uint8).reshape(height, width, 3) if len(data) == height * width * 3 else None


if __name__ == "__main__":
    sys.exit(main())
