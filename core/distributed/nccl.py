"""Ranks on NVIDIA GPUs, connected by NCCL: one process per GPU, gradients averaged inside the captured step (extra
`multi-gpu`). Only NCCL opens connections, as `SOCKETS` and the user's NCCL_* variables configure it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.communicator import ANSWER_SECONDS, Communicator
from core.distributed.rank_environment import Heartbeat, PresenceFiles, RankEnvironment
from core.errors import DeviceError
from core.gpu.driver.device import is_idle, open_device
from core.gpu.driver.memory import Block
from core.storage import write_file

try:
    from nccl.bindings import nccl
except ImportError as error:
    raise DeviceError(f"Training on several GPUs needs NCCL ({error}). Install it with: "
                      "pip install '.[multi-gpu]'") from error  # fmt: skip

BYTES, FLOATS, MEAN = int(nccl.DataType.Uint8), int(nccl.DataType.Float32), int(nccl.RedOp.Avg)
SOCKETS: Final = "NCCL_COMM_ID"
"""Address where ranks of several machines meet; read by NCCL itself."""
ID_FILE: Final = "nccl-id"
ID_SECONDS: Final = 120.0
PIECE: Final = 1 << 22
"""Bytes of host data per broadcast."""


class NcclCommunicator(Communicator):
    """Host data go through a small block on the GPU; gradients are averaged in place."""

    polling_seconds = 0.05  # about a step on the GPU

    def __init__(self, environment: RankEnvironment, mpi: Communicator | None) -> None:
        super().__init__(environment.rank, environment.size, environment.machine_rank)
        self._mpi, self._device = mpi, open_device()
        folder = Path(environment.rendezvous)
        self._files = PresenceFiles(folder, self.rank, self.size) if environment.rendezvous else None
        self._heartbeat = None if self._files is None else Heartbeat(self._files.renew)
        self._stream = self._device.new_stream()
        try:
            identifier = bytearray(self._identifier(environment))
            self._ranks = nccl.comm_init_rank_scalable(self.size, self.rank, 1, identifier, 0)
        except nccl.NCCLError as error:
            raise DeviceError(f"NCCL cannot connect rank {self.rank} with the others: {error}.") from error
        self._block = Block(PIECE)

    def _identifier(self, environment: RankEnvironment) -> bytes:
        """NCCL's identifier of the group, created by rank 0, or by each rank from the address."""
        if environment.address:
            os.environ.setdefault(SOCKETS, environment.address)
            return bytes(nccl.get_unique_id())
        made = bytes(nccl.get_unique_id()) if self.rank == 0 else b""
        if self._mpi is not None:
            return self._mpi.broadcast(made)
        return _exchange(Path(environment.rendezvous) / ID_FILE, made)

    def average_gradients(self, blocks: Sequence[tuple[int, int]], stream: Any = None) -> None:
        nccl.group_start()
        for address, count in blocks:
            nccl.all_reduce(address, address, count, FLOATS, MEAN, self._ranks, int(stream))
        nccl.group_end()

    def broadcast(self, content: bytes) -> bytes:
        length = int.from_bytes(self._pass_on(len(content).to_bytes(8, "little"), 8), "little")
        return b"".join(self._pass_on(content[at : at + PIECE], min(PIECE, length - at))
                        for at in range(0, length, PIECE))  # fmt: skip

    def _pass_on(self, piece: bytes, length: int) -> bytes:
        if self.rank == 0:
            self._block.put(np.frombuffer(piece, np.uint8))
        at = self._block.address
        self._run(lambda: nccl.broadcast(at, at, length, BYTES, 0, self._ranks, int(self._stream)))
        return self._block.get(length, np.uint8).tobytes()

    def gather(self, content: bytes) -> list[bytes]:
        lengths = np.frombuffer(self._collect(len(content).to_bytes(8, "little"), 8), np.int64)
        room = max(int(lengths.max()), 1)
        whole = self._collect(content, room)
        return [whole[room * rank :][: int(length)] for rank, length in enumerate(lengths)]

    def _collect(self, content: bytes, room: int) -> bytes:
        """The contents of all ranks, each padded to `room` bytes."""
        block = Block(room * self.size)
        mine = block.address + room * self.rank
        block.put(np.frombuffer(content, np.uint8), room * self.rank)
        self._run(lambda: nccl.all_gather(mine, block.address, room, BYTES, self._ranks, int(self._stream)))
        whole = block.get(room * self.size, np.uint8).tobytes()
        block.close()
        return whole

    def _run(self, call: Callable[[], None]) -> None:
        self._device.activate()
        call()
        self.wait(lambda: is_idle(self._stream))

    def silent_ranks(self) -> tuple[int, ...]:
        return self.absent_ranks() if self._mpi is None else self._mpi.silent_ranks()

    def absent_ranks(self) -> tuple[int, ...]:
        if self._mpi is not None:
            return self._mpi.absent_ranks()
        return () if self._files is None else self._files.absent(ANSWER_SECONDS)

    def close(self) -> None:
        super().close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._device.activate()
        self._block.close()
        # NCCL's group ends with the process: destroying it waits for every captured graph that uses it


def _exchange(path: Path, made: bytes) -> bytes:
    """Write the identifier to a file, or wait for it."""
    if made:
        write_file(path, made)
        return made
    until = time.monotonic() + ID_SECONDS
    while not path.exists():
        if time.monotonic() > until:
            raise DeviceError(f"Rank 0 wrote no identifier to {path.parent} within {ID_SECONDS:.0f} seconds.")
        time.sleep(0.02)
    return path.read_bytes()
