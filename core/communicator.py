"""The interface between the processes that train one network together, implemented by `core.distributed`.

Each process is a rank, from 0 to `size` - 1. Every collective call is made by all ranks, in the same order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from core.errors import RankLost

ANSWER_SECONDS: Final = 15.0
"""How long a rank may be late for a collective call, beyond the time that this rank has worked since the last one."""


class Communicator(ABC):
    """The ranks of a run, seen from one of them. `machine_rank`: the number of this rank on its machine.

    With `limited`, a collective call raises RankLost where the others do not answer in time; without, it waits, as
    while one rank decodes photos for all. `lost`: RankLost was raised, and work queued on a GPU may never end.
    """

    rank = 0
    size = 1
    machine_rank = 0
    limited = False
    lost = False

    def __init__(self) -> None:
        self._answered = time.monotonic()

    @abstractmethod
    def average_gradients(self, blocks: Sequence[tuple[int, int]], stream: Any = None) -> None:
        """Replace each block of float32, (address, count), by its mean over the ranks; all ranks get the same bits.

        The blocks are in the memory of the device that computes. On a GPU the work is queued on `stream`, which may be
        captured.
        """

    @abstractmethod
    def broadcast(self, content: bytes) -> bytes:
        """The content that rank 0 gives."""

    @abstractmethod
    def gather(self, content: bytes) -> list[bytes]:
        """What each rank gives, on every rank."""

    def barrier(self) -> None:
        """Return when every rank has called this."""
        self.gather(b"")

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Poll until collective work is done. Raises RankLost."""
        begun = time.monotonic()
        limit = ANSWER_SECONDS + begun - self._answered
        while not is_done():
            waited = time.monotonic() - begun
            if self.limited and waited > limit:
                self.lost = True
                raise RankLost(self.silent_ranks(), waited)
            if waited > 1e-3:  # below, sleeping would cost a short step more than polling
                time.sleep(min(waited / 10, 0.01))
        self._answered = time.monotonic()

    def silent_ranks(self) -> tuple[int, ...]:
        """The ranks that do not answer; empty if that cannot be found out."""
        return ()

    def close(self) -> None:
        """Release what the ranks share; all ranks call it at the end of a run."""
        self.barrier()


@final
class SingleProcess(Communicator):
    """The one rank of a run on one device."""

    def average_gradients(self, blocks: Sequence[tuple[int, int]], stream: Any = None) -> None:
        """Do nothing: the mean of one."""

    def broadcast(self, content: bytes) -> bytes:
        return content

    def gather(self, content: bytes) -> list[bytes]:
        return [content]
