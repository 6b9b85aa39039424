"""Weak and strong scaling over the GPUs of one machine: ours and PyTorch's DistributedDataParallel, interleaved.

    python -m benchmarks.scaling --gpus 1 4 --compile
    python -m benchmarks.scaling --gpus 1 4 --ready-seconds 120 --seconds 480 [--models squeezenet1_0 ...] [--rounds 3]

A group is a network and a peer with one process on each GPU. All groups start first; then one computes at a time. Steps
are whole ones, as training makes them: copy of the settings, forward, backward, all-reduce, update, and for ours the
loss read back. Precision is mixed (bf16), the optimizer AdamW. The base of weak scaling is the same network in the same
processes, all of which compute at the same time without all-reduce (`x1`). Strong scaling is a global batch of
`STRONG` photos. Groups that PyTorch compiles start after the others were measured, and are measured interleaved with
them again; `--compile` fills the caches before, so that they are ready in time. A group that is not ready or does not
answer in time is ended and excluded; results are written after every round. `benchmarks.tables.scaling` makes the table
and the plot of docs/distributed.md.
"""

from __future__ import annotations

import argparse
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.record import Row, gpu_name, write_results
from benchmarks.scaling_worker import ALONE, SYNCHRONIZED, TOGETHER, WARM
from core.distributed.rank_environment import RENDEZVOUS

MODELS = ("squeezenet1_0", "squeezenet1_1_bn", "mobilenetv2")
BATCHES = (32, 128, 256)
WITHOUT_NORM = "squeezenet1_0"
STRONG = 256
COMPILED = "DDP compiled"
PEERS = ("ours", SYNCHRONIZED, "DDP eager", COMPILED)
REDUCED = (1, 1 << 14, 1 << 17, 1 << 19, 1 << 21)
"""Numbers of float32 whose all-reduce is timed, with the network of the most weights."""
SECONDS = 0.15
"""Of one timing."""
ANSWER_SECONDS = 10.0

Times = dict[tuple[str, str, int, int], list[float]]
"""Milliseconds of a step in each round, by peer, network, GPUs and batch of a GPU."""


class Group:
    """The processes of a peer with a network, one on each GPU."""

    def __init__(self, peer: str, model: str, gpus: int, batches: tuple[int, ...], folder: Path) -> None:
        self.peer, self.model, self.gpus, self.batches = peer, model, gpus, batches
        folder.mkdir()
        sizes = [*batches, *([-count for count in REDUCED] if self.reduces else [])]
        command = [sys.executable, "-m", "benchmarks.scaling_worker", peer, model, *map(str, sizes)]
        self._processes = []
        for rank in range(gpus):
            variables = {
                "CUDA_VISIBLE_DEVICES": str(rank), "RANK": str(rank), "WORLD_SIZE": str(gpus), "LOCAL_RANK": str(rank),
                RENDEZVOUS: str(folder), "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            self._processes.append(subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if rank else subprocess.PIPE, text=True,
                env={**os.environ, **variables},
            ))  # fmt: skip
        self.works = True

    @property
    def reduces(self) -> bool:
        """Whether it times the all-reduce."""
        return self.peer == "ours" and self.model == MODELS[-1]

    def read(self, until: float) -> str:
        """A line of rank 0; "" where none came in time, and the group is ended."""
        output = self._processes[0].stdout
        assert output is not None
        ready = self.works and select.select([output], [], [], max(until - time.monotonic(), 0.1))[0]
        line = output.readline().strip() if ready else ""
        if not line and self.works:
            print(f"{self.peer}, {self.model}, {self.batches}: no answer in time", flush=True)
            self.end()
        return line

    def milliseconds(self, batch: int, steps: int, kind: str = TOGETHER) -> float:
        """Of one step; NaN where the group does not work."""
        with suppress(BrokenPipeError):  # a process that ended has said why
            for process in self._processes if self.works else ():
                assert process.stdin is not None
                process.stdin.write(f"{batch} {steps} {kind}\n")
                process.stdin.flush()
        return float(self.read(time.monotonic() + ANSWER_SECONDS) or "nan")

    def end(self) -> None:
        self.works = False
        for process in self._processes:
            process.kill()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):  # a process that the driver holds
                process.wait(5)


def batches_of(gpus: int) -> tuple[int, ...]:
    """Photos of a GPU that are timed on so many, with those of strong scaling."""
    return tuple(sorted({*BATCHES, STRONG // gpus}))


def compile_first(models: list[str], gpus: list[int], peers: list[str]) -> None:
    """Compile what groups compute, once and side by side, so that their processes find it in caches."""
    batches = sorted({str(batch) for count in gpus if count > 1 for batch in batches_of(count)}, key=int)
    ours = [(f"{WARM} ours", model, *batches) for model in models if "ours" in peers]
    theirs = [(f"{WARM} {COMPILED}", model, batch) for model in models for batch in batches if COMPILED in peers]
    running = [subprocess.Popen([sys.executable, "-m", "benchmarks.scaling_worker", *case]) for case in ours + theirs]
    for process in running:
        process.wait()


def start_groups(models: list[str], gpus: list[int], peers: list[str], folder: Path, until: float) -> list[Group]:
    """Start all groups and wait until they are ready. PyTorch has one for each batch size: cuDNN tries algorithms."""
    cases = [(peer, model, count, batches) for peer in peers for model in models for count in gpus if count > 1
             for batches in ([batches_of(count)] if "ours" in peer else [(batch,) for batch in batches_of(count)])
             if (peer, model) != (SYNCHRONIZED, WITHOUT_NORM)]  # fmt: skip
    groups = [Group(*case, folder / f"{case[0]} {number}") for number, case in enumerate(cases)]
    for group in groups:
        print(f"{group.peer} {group.model} {group.batches} x{group.gpus} {group.read(until)}", flush=True)
    return groups


def measure(groups: list[Group], times: Times, steps: dict[Any, int], until: float) -> None:
    """Time each batch of each group once, alone and together."""
    for batch in sorted({batch for group in groups for batch in group.batches}):
        for group in groups:
            if batch not in group.batches or not group.works or time.monotonic() > until:
                continue
            if (group, batch) not in steps:
                first = group.milliseconds(batch, 3)
                steps[group, batch] = max(int(SECONDS * 1e3 / first), 3) if first > 0 else 3
            for kind, gpus in ((ALONE, 1), (TOGETHER, group.gpus)):
                found = group.milliseconds(batch, steps[group, batch], kind)
                if found == found:
                    times.setdefault((group.peer, group.model, gpus, batch), []).append(found)
                print(f"{group.peer:12} {group.model} b{batch} x{gpus} {found:.4f} ms", flush=True)


def make_rows(times: dict[tuple[str, str, int, int], float]) -> list[Row]:
    """A row for each network, batch and number of GPUs that ours has: step times of all peers."""
    rows = []
    for (peer, model, count, batch), ours in times.items():
        if peer == "ours":
            peers = {other: times[other, model, count, batch] for other in PEERS[1:]
                     if (other, model, count, batch) in times}  # fmt: skip
            theirs = [value for other, value in peers.items() if other != SYNCHRONIZED]
            ratio = min(theirs) / ours if theirs else float("nan")
            rows.append(Row(f"{model} b{batch} x{count}", ours, peers, "ms", ratio))
    return rows


def efficiencies(times: dict[tuple[str, str, int, int], float]) -> dict[str, dict[str, float]]:
    """By case and peer: weak, time alone over the time together; strong, speed-up over GPUs, as shares of the ideal."""
    found: dict[str, dict[str, float]] = {}
    for (peer, model, count, batch), value in times.items():
        if count == 1 or (peer, model, 1, batch) not in times:
            continue
        found.setdefault(f"weak {model} b{batch} x{count}", {})[peer] = times[peer, model, 1, batch] / value
        if batch * count == STRONG and (peer, model, 1, STRONG) in times:
            strong = times[peer, model, 1, STRONG] / (value * count)
            found.setdefault(f"strong {model} {STRONG} x{count}", {})[peer] = strong
    return {case: {peer: round(value, 4) for peer, value in shares.items()} for case, shares in found.items()}


def time_all_reduce(groups: list[Group]) -> dict[str, dict[str, float]]:
    """Milliseconds of an all-reduce by number of GPUs and of float32."""
    return {
        str(group.gpus): {str(count): round(group.milliseconds(-count, 300), 5) for count in REDUCED}
        for group in groups if group.works and group.reduces
    }  # fmt: skip


def save(times: Times, gpus: int, **more: Any) -> None:
    medians = {case: statistics.median(found) for case, found in times.items()}
    shares = efficiencies(medians)
    for case, of_peers in shares.items():
        print(case, of_peers, flush=True)
    write_results("scaling", make_rows(medians), f"{gpu_name()}-x{gpus}", efficiency=shares, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ready-seconds", type=float, default=60, help="longest time for groups to prepare")
    parser.add_argument("--seconds", type=float, default=180, help="longest time in all")
    parser.add_argument("--compile", action="store_true", help="compile what is not in the caches, and end")
    options = parser.parse_args()
    if options.compile:
        compile_first(options.models, options.gpus, options.peers)
        return
    until = time.monotonic() + options.seconds
    times: Times = {}
    steps: dict[Any, int] = {}
    groups: list[Group] = []
    reduced: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for peers in ([peer for peer in options.peers if peer != COMPILED], [COMPILED]):
                ready = min(time.monotonic() + options.ready_seconds, until)
                of_these = [peer for peer in peers if peer in options.peers]
                groups += start_groups(options.models, options.gpus, of_these, Path(folder), ready)
                reduced = reduced or time_all_reduce(groups)
                for done in range(options.rounds if of_these else 0):
                    measure(groups, times, steps, until)
                    save(times, max(options.gpus), rounds=done + 1, all_reduce_ms=reduced)
        finally:
            for group in groups:
                group.end()


if __name__ == "__main__":
    main()
