"""The interface between the processes that train one network together, implemented by `core.distributed`.

Each process is a rank, from 0 to `size` - 1. Every collective call is made by all ranks, in the same order.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
from safetensors.numpy import load, save

from core.errors import RankLost
from core.ops.contract import Array

ANSWER_SECONDS: Final = 15.0
"""How long a rank may be late for a collective call, plus the time that this rank has worked since the last one."""


class Communicator(ABC):
    """The ranks of a run, from the view of one. machine_rank: number of this rank on its machine.

    limited: a collective call raises RankLost if others do not answer in time; otherwise only if a process has ended,
    as while one rank decodes photos for all. lost: RankLost was raised; work queued on a GPU may never end.
    """

    limited = False
    lost = False
    polling_seconds = 1e-3
    """Seconds that a wait polls without sleeping; a longer wait may end 1 % late."""

    def __init__(self, rank: int = 0, size: int = 1, machine_rank: int = 0) -> None:
        self.rank, self.size, self.machine_rank = rank, size, machine_rank
        self._answered = time.monotonic()

    @abstractmethod
    def average_gradients(self, blocks: Sequence[tuple[int, int]], stream: Any = None) -> None:
        """Replace each block of float32, (address, count), by its mean over the ranks; all ranks get the same bits.

        Blocks are in the memory of the device. On a GPU the work is queued on `stream`, which may be captured.
        """

    @abstractmethod
    def broadcast(self, content: bytes) -> bytes:
        """Return the content of rank 0."""

    @abstractmethod
    def gather(self, content: bytes) -> list[bytes]:
        """Return the contents of all ranks."""

    def gather_values(self, value: Any) -> list[Any]:
        """Return the values of all ranks, of types that JSON has."""
        return [json.loads(text) for text in self.gather(json.dumps(value).encode())]

    def broadcast_arrays(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of rank 0."""
        content = {name: np.asarray(array, order="C") for name, array in arrays.items()} if self.rank == 0 else {}
        found: dict[str, Array] = load(self.broadcast(save(content)))
        return found

    def own_rows(self, count: int) -> slice:
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def join_rows(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Concatenate the rows of all ranks; a rank without rows gives no arrays."""
        if self.size == 1:
            return dict(arrays)
        found = [share for part in self.gather(save(dict(arrays))) if (share := load(part))]
        return {name: np.concatenate([share[name] for share in found]) for name in (found[0] if found else ())}

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        self.gather(b"")

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Poll until collective work is done. Raises RankLost."""
        begun = time.monotonic()
        limit = ANSWER_SECONDS + begun - self._answered
        while not is_done():
            waited = time.monotonic() - begun
            if self.limited and waited > limit:
                self._lose(self.silent_ranks(), waited)
            if waited > ANSWER_SECONDS and (absent := self.absent_ranks()):
                self._lose(absent, waited)
            if waited > self.polling_seconds:
                time.sleep(min(waited / 100, 0.01))
        self._answered = time.monotonic()

    def _lose(self, ranks: tuple[int, ...], seconds: float) -> NoReturn:
        self.lost = True
        raise RankLost(ranks, seconds)

    def absent_ranks(self) -> tuple[int, ...]:
        """The ranks whose process has not run for ANSWER_SECONDS; empty if unknown."""
        return ()

    def silent_ranks(self) -> tuple[int, ...]:
        """The ranks that do not answer; empty if unknown."""
        return ()

    def close(self) -> None:
        """Release shared resources; all ranks call it at the end of a run."""
        self.barrier()


class SingleProcess(Communicator):
    """The only rank of a run on one device."""

    def average_gradients(self, blocks: Sequence[tuple[int, int]], stream: Any = None) -> None:
        """Do nothing."""

    def broadcast(self, content: bytes) -> bytes:
        return content

    def gather(self, content: bytes) -> list[bytes]:
        return [content]

    def gather_values(self, value: Any) -> list[Any]:
        return [value]


SINGLE: Final = SingleProcess()
