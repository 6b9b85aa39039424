"""Ranks: which one this process is, from the environment that MPI, Slurm, torchrun or `--gpus` set; how they connect;
and how they show each other that they still run."""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from core.communicator import Communicator, SingleProcess
from core.cores import count_gpu_files
from core.errors import DeviceError
from core.gpu.hardware import NO_DRIVER, has_driver

RENDEZVOUS: Final = "LEAFCLINIC_RENDEZVOUS"
"""Private folder of the launcher of one machine, where rank 0 writes NCCL's identifier."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"

MPI_SIZES: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Set by Open MPI; and by MPICH, Intel MPI and Slurm with --mpi=pmi2."""
NAMES: Final = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, and core.distributed.launch
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),  # srun
)
"""Environment variables of rank, size, and rank on the machine."""
SLURM_PORTS: Final = (20000, 40000)
"""First port for Slurm jobs, and how many; the job's number selects one."""
HEARTBEAT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """A rank. address: "host:port" where ranks of several machines meet; rendezvous: the folder for those of one
    machine; mpi: MPI started the ranks."""

    rank: int = 0
    size: int = 1
    machine_rank: int = 0
    address: str = ""
    rendezvous: str = ""
    mpi: bool = False


def find_rank(environment: Mapping[str, str] = os.environ) -> RankEnvironment:
    """The rank of this process. Raises DeviceError if variables are wrong or contradict each other."""
    rendezvous = environment.get(RENDEZVOUS, "")
    open_mpi, pmi = (_read_number(environment, name) > 1 for name in MPI_SIZES)
    for rank, size, machine_rank in () if open_mpi else NAMES:  # under mpirun, Slurm's count the launchers
        if rank in environment and size in environment:
            own, all_ranks, here = (_read_number(environment, name) for name in (rank, size, machine_rank))
            if own >= all_ranks:
                raise DeviceError(f"{rank}={own} is no rank among {size}={all_ranks}.")
            if all_ranks > 1:
                return RankEnvironment(own, all_ranks, here, "" if rendezvous else _address(environment), rendezvous)
    if open_mpi or pmi:
        from core.distributed.mpi import world  # its import starts MPI

        return world()
    return RankEnvironment()


def _read_number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "0")
    if not text.isdecimal():
        raise DeviceError(f"{name}={text} is no number. The launcher of the ranks sets it.")
    return int(text)


def _address(environment: Mapping[str, str]) -> str:
    """Address for NCCL: the port after torchrun's own, or a port on the first node of a Slurm step."""
    if "MASTER_ADDR" in environment and "MASTER_PORT" in environment:
        return f"{environment['MASTER_ADDR']}:{_read_number(environment, 'MASTER_PORT') + 1}"
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    if not nodes:
        raise DeviceError("There are several ranks, but MASTER_ADDR and MASTER_PORT are not set.")
    first, count = SLURM_PORTS
    return f"{first_node(nodes)}:{first + _read_number(environment, 'SLURM_JOB_ID') % count}"


def first_node(nodes: str) -> str:
    """The first name in a Slurm list such as "gpu[007-012,020],cpu1"."""
    return re.sub(r"^([^\[,]*)(?:\[(\d+)[^\]]*\])?.*$", r"\1\2", nodes)


def choose_gpu(environment: RankEnvironment) -> None:
    """Let this process see only the GPU of its rank; called before CUDA starts. Raises DeviceError."""
    if environment.size == 1:
        return
    visible, own = _visible_gpus(), environment.machine_rank
    if visible is None:
        os.environ[VISIBLE] = str(own)
    elif len(visible) > 1:  # Slurm and others show each process only its own
        if own >= len(visible):
            raise DeviceError(f"Rank {environment.rank} has no GPU: {VISIBLE} names {len(visible)} for more ranks.")
        os.environ[VISIBLE] = visible[own]


def add_gpu(parser: Any) -> None:
    """Add the option of a GPU to a parser or a group of its options."""
    parser.add_argument("--gpu", type=use_gpu, metavar="N", help="number of the GPU, from 0 (default: 0)")


def use_gpu(text: str) -> int:
    """Let this process see only one of its GPUs, by its number from 0, before CUDA starts. Raises DeviceError."""
    number, names = int(text) if text.isdecimal() else -1, _known_gpus()
    if not has_driver():
        raise DeviceError(f"--gpu {text}: {NO_DRIVER}")
    if number < 0 or (names is not None and number >= len(names)):
        raise DeviceError(f"--gpu {text}: there is no such GPU. The first is 0; {VISIBLE} may hide others.")
    os.environ[VISIBLE] = str(number) if names is None else names[number]
    return number


def share_gpus(number: int) -> None:
    """Let this process see one GPU of its machine; processes share GPUs where they outnumber them."""
    names = _known_gpus() or []
    if len(names) > 1:
        os.environ[VISIBLE] = names[number % len(names)]


def _known_gpus() -> list[str] | None:
    """The GPUs that this process may use; None where it cannot count them, as on Windows."""
    visible = _visible_gpus()
    return visible if visible is not None else [str(index) for index in range(count_gpu_files())] or None


def _visible_gpus() -> list[str] | None:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names: none where it is empty; None where it is not set."""
    names = os.environ.get(VISIBLE)
    return None if names is None else [name for name in names.split(",") if name]


def connect(environment: RankEnvironment, device: str) -> Communicator:
    """Connect the ranks of this run on "cpu" or "cuda"; all ranks call this. Raises DeviceError."""
    if environment.size == 1:
        return SingleProcess()
    if environment.mpi:
        from core.distributed.mpi import MpiCommunicator

        ranks = MpiCommunicator(environment)
        if len(set(ranks.gather(device.encode()))) > 1:
            raise DeviceError("Some ranks have a GPU and others do not. Choose the CPU for all with --device cpu.")
        if device == "cpu":
            return ranks
    elif device == "cpu":
        raise DeviceError("Several processes on CPUs need MPI: pip install '.[mpi]', then "
                          "mpirun -n 2 leafclinic train ... --device cpu.")  # fmt: skip
    from core.distributed.nccl import NcclCommunicator

    return NcclCommunicator(environment, ranks if environment.mpi else None)


class Heartbeat:
    """Calls `signal` every second from a thread until `stop` or the end of the process."""

    def __init__(self, signal: Callable[[], None]) -> None:
        self._signal, self._ended = signal, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def _run(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            self._signal()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        atexit.unregister(self.stop)


class PresenceFiles:
    """Files of the ranks of one machine in a shared folder; each rank renews the time of its own."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._files = {number: folder / f"alive-{number}" for number in range(size)}
        self.renew = self._files.pop(rank).touch
        self._seen = {number: (0, time.monotonic()) for number in self._files}
        """The time of each file, and when this process saw it change."""

    def absent(self, seconds: float) -> tuple[int, ...]:
        """The other ranks that have not renewed their files for so long, as seen by calls of this function.

        A time is only compared with the earlier one of the same file: clocks may be changed.
        """
        now = time.monotonic()
        for rank, path in self._files.items():
            renewed = path.stat().st_mtime_ns if path.exists() else 0
            if renewed != self._seen[rank][0]:
                self._seen[rank] = (renewed, now)
        return tuple(rank for rank, (_, seen) in self._seen.items() if now - seen > seconds)
