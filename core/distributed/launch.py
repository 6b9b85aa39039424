"""Starts the ranks of one machine, one process per GPU, and ends all of them when one fails."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from core import errors
from core.child_process import child_environment
from core.distributed.rank_environment import MPI_SIZES, NAMES, RENDEZVOUS, RankEnvironment, find_rank

GRACE_SECONDS: Final = 2.0
"""Time for the other ranks to end by themselves."""
OTHERS_SECONDS: Final = 1.0
"""Time that other ranks give rank 0 to report an error that concerns all."""
POLL_SECONDS: Final = 0.05
REQUEST: Final = "request"
GOOD: Final = (errors.EXIT_DONE, errors.EXIT_STOPPED)
PARENT_DIED: Final = 1
"""PR_SET_PDEATHSIG of prctl (linux/prctl.h)."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A started rank. log: the file of its error stream; None for rank 0, which uses that of the launcher."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path | None

    def describe(self) -> str:
        """Why it ended, as a sentence."""
        code = self.process.returncode
        if code is None:
            return f"Rank {self.number} did not answer."
        if code < 0:
            return f"Rank {self.number} was ended by signal {-code} ({signal.Signals(-code).name})."
        last_line = ""
        if self.log is not None:
            last_line = self.log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
        reason = last_line or f"exit code {code}"
        return reason if last_line.startswith("Rank") else f"Rank {self.number} failed: {reason}"


def run_ranks(command: Sequence[str], count: int, request: str = "", output: IO[str] | None = None) -> int:
    """Run a command once per GPU; returns its exit code. Raises LeafClinicError that names the rank that failed.

    request: text that every rank can read with `read_request`; output: of rank 0, by default that of this process.
    """
    with tempfile.TemporaryDirectory(prefix="leafclinic-") as rendezvous:
        (Path(rendezvous) / REQUEST).write_text(request, "utf-8")
        ranks = [_start(command, number, count, Path(rendezvous), output) for number in range(count)]
        before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGHUP)}  # the ranks get them too
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, _stopper(ranks))
        try:
            return _follow(ranks)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()


def read_request(environment: RankEnvironment) -> str:
    return (Path(environment.rendezvous) / REQUEST).read_text("utf-8")


def _start(command: Sequence[str], number: int, count: int, rendezvous: Path, output: IO[str] | None) -> Rank:
    # NCCL's own sockets stay on this machine
    variables = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(count),
                 RENDEZVOUS: str(rendezvous), "NCCL_SOCKET_IFNAME": "lo"}  # fmt: skip
    how: dict[str, Any] = {"env": child_environment(**variables),
                           "preexec_fn": lambda: ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGTERM)}  # fmt: skip
    if number == 0:
        return Rank(0, subprocess.Popen(command, stdout=output, **how), None)
    log = rendezvous / f"errors-{number}"
    with log.open("wb") as file:
        nothing = subprocess.DEVNULL
        return Rank(number, subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=file, **how), log)


def _stopper(ranks: Sequence[Rank]) -> Callable[[int, FrameType | None], None]:
    def stop(number: int, frame: FrameType | None) -> None:
        for rank in ranks:
            rank.process.terminate()

    return stop


def _follow(ranks: Sequence[Rank]) -> int:
    """Wait for all ranks; returns the exit code, or raises LeafClinicError when one fails."""
    while all(rank.process.poll() in (None, *GOOD) for rank in ranks):
        if all(rank.process.returncode is not None for rank in ranks):
            return ranks[0].process.returncode
        time.sleep(POLL_SECONDS)
    until = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < until and any(rank.process.poll() is None for rank in ranks):
        time.sleep(POLL_SECONDS)
    first = ranks[0]
    if (first.process.returncode or 0) > 0 and first.process.returncode != errors.EXIT_LOST:
        return first.process.returncode  # it has printed the reason
    failed = [rank for rank in ranks if rank.process.returncode not in (None, errors.EXIT_LOST, *GOOD)]
    silent = [rank for rank in ranks if rank.process.returncode is None]
    raise errors.LeafClinicError(f"{(failed or silent or ranks)[0].describe()} {errors.RESUME}")


def run_rank(work: Callable[[RankEnvironment], int]) -> int:
    """Run a training as the rank of this process; only one of several ranks reports why the run ends."""
    environment = find_rank()
    try:
        return work(environment)
    except errors.RankLost as error:
        first = min(set(range(environment.size)) - set(error.ranks))
        reports = environment.rank == first or not environment.mpi
        if environment.mpi and not (reports and error.ranks):  # nobody is missing for a rank that was stopped itself
            time.sleep(GRACE_SECONDS)  # another one reports it, and MPI ends this one
        if reports and not environment.rendezvous:
            raise
        os._exit(errors.EXIT_LOST)  # the launcher names the rank
    except errors.LeafClinicError as error:
        if environment.size == 1 or (environment.rank == 0 and not isinstance(error, errors.StorageError)):
            raise  # an error of all ranks, reported once; a full disk concerns one machine
        time.sleep(OTHERS_SECONDS if environment.rank else 0)
        raise errors.RankFailed(environment.rank, error) from error


def end_rank(work: Callable[[], int]) -> int:
    """Run a command; if it fails, end the other ranks of its run too."""
    try:
        code = work()
    except Exception:  # noqa: BLE001 - the others would wait for this rank
        traceback.print_exc()
        code = errors.EXIT_FAILED
    if code in GOOD:
        return code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)
    if any(name in os.environ for name in MPI_SIZES):
        time.sleep(OTHERS_SECONDS)  # Open MPI's launcher may hang if a rank ends while another one connects to it
    if any(os.environ.get(size, "1") != "1" for _, size, _ in NAMES):
        os._exit(code)  # work on the GPU that waits for other ranks would never end
    return code
