"""Ranks that MPI starts, names and connects: gradients of CPUs, and NCCL's identifier for GPUs (extra `mpi`)."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from core import communicator
from core.communicator import Communicator
from core.distributed.rank_environment import Heartbeat, RankEnvironment
from core.errors import DeviceError

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py without an MPI library
    raise DeviceError(f"MPI started this program, but mpi4py cannot be used ({error}). Install it with: "
                      "pip install '.[mpi]'") from error  # fmt: skip

PRESENT: Final = 77
"""Tag of messages by which waiting ranks show that they run (`silent_ranks`)."""
ALIVE: Final = 78
"""Tag of the heartbeat messages (`absent_ranks`)."""
PRESENT_SECONDS: Final = 2.0


def world() -> RankEnvironment:
    """The rank of this process among those that MPI started."""
    everyone = MPI.COMM_WORLD
    machine = everyone.Split_type(MPI.COMM_TYPE_SHARED)
    found = RankEnvironment(everyone.Get_rank(), everyone.Get_size(), machine.Get_rank(), mpi=True)
    machine.Free()
    return found


class MpiCommunicator(Communicator):
    """Collective calls are non-blocking and polled, so that a missing rank does not block the others."""

    def __init__(self, environment: RankEnvironment) -> None:
        super().__init__(environment.rank, environment.size, environment.machine_rank)
        self._ranks = MPI.COMM_WORLD
        self._alive = dict.fromkeys(set(range(self.size)) - {self.rank}, time.monotonic())
        self._heartbeat = Heartbeat(lambda: self._tell(ALIVE))

    def average_gradients(self, blocks: Sequence[tuple[int, int]], stream: Any = None) -> None:
        for address, count in blocks:
            values = np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))
            self._wait_for(self._ranks.Iallreduce(MPI.IN_PLACE, values, MPI.SUM))
            values *= np.float32(1 / self.size)

    def broadcast(self, content: bytes) -> bytes:
        length = np.array([len(content)], np.int64)
        self._wait_for(self._ranks.Ibcast(length, 0))
        whole = np.empty(length[0], np.uint8)
        if self.rank == 0:
            whole[:] = np.frombuffer(content, np.uint8)
        self._wait_for(self._ranks.Ibcast(whole, 0))
        return whole.tobytes()

    def gather(self, content: bytes) -> list[bytes]:
        lengths = np.empty(self.size, np.int64)
        self._wait_for(self._ranks.Iallgather(np.array([len(content)], np.int64), lengths))
        whole = np.empty(lengths.sum(), np.uint8)
        self._wait_for(self._ranks.Iallgatherv(np.frombuffer(content, np.uint8), (whole, lengths)))
        return [part.tobytes() for part in np.split(whole, np.cumsum(lengths)[:-1])]

    def _tell(self, tag: int) -> None:
        for rank in self._alive:
            self._ranks.Isend(np.zeros(1, np.uint8), rank, tag)

    def silent_ranks(self) -> tuple[int, ...]:
        others = set(self._alive)
        self._tell(PRESENT)
        status, until = MPI.Status(), time.monotonic() + PRESENT_SECONDS
        while others and time.monotonic() < until:
            if self._ranks.Iprobe(MPI.ANY_SOURCE, PRESENT, status):
                self._ranks.Recv(np.empty(1, np.uint8), status.Get_source(), PRESENT)
                others.discard(status.Get_source())
            else:
                time.sleep(0.01)
        return tuple(sorted(others))

    def absent_ranks(self) -> tuple[int, ...]:
        status = MPI.Status()
        while self._ranks.Iprobe(MPI.ANY_SOURCE, ALIVE, status):
            self._ranks.Recv(np.empty(1, np.uint8), status.Get_source(), ALIVE)
            self._alive[status.Get_source()] = time.monotonic()
        limit = time.monotonic() - communicator.ANSWER_SECONDS
        if absent := tuple(rank for rank, last_seen in self._alive.items() if last_seen < limit):
            self._tell(PRESENT)  # others may be asking for the silent ranks
        return absent

    def close(self) -> None:
        self._heartbeat.stop()
        super().close()

    def _wait_for(self, request: MPI.Request) -> None:
        self.wait(request.Test)
