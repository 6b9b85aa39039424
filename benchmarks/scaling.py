"""Weak and strong scaling over the GPUs of one machine: ours and PyTorch's DistributedDataParallel, interleaved.

    python -m benchmarks.scaling --gpus 1 2 [--models squeezenet1_0 ...] [--rounds 3]

Every group (a network, a peer, a number of GPUs) has its processes from the start; only one group computes at a time.
Steps are whole ones, as training makes them: copy of the settings, forward, backward, all-reduce, update, and for ours
the loss read back. Precision is mixed (bf16), the optimizer AdamW. Weak scaling compares equal batches a GPU; strong
scaling is the global batch of `STRONG` photos. With two or more numbers of GPUs the first is the base.
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
from pathlib import Path
from typing import Any

from benchmarks.record import Row, write_results
from benchmarks.two_trees import gpu_name
from core.distributed.place import MEETING

MODELS = ("squeezenet1_0", "squeezenet1_1_bn", "mobilenetv2")
BATCHES = (32, 128, 256)
STRONG = 256
PEERS = ("ours", "DDP eager", "DDP compiled")
UNCOMPILED = ("squeezenet1_1_bn",)
"""Networks without a compiled peer, whose compilation would take most of the time."""
SECONDS = 0.2
"""Of one timing."""


class Group:
    """The processes of a peer with a network on so many GPUs."""

    def __init__(self, peer: str, model: str, gpus: int, batches: list[int], folder: Path) -> None:
        self.peer, self.model, self.gpus = peer, model, gpus
        folder.mkdir()
        command = [sys.executable, "-m", "benchmarks.scaling_worker", peer, model, *map(str, batches)]
        self._processes = []
        for rank in range(gpus):
            place = {"CUDA_VISIBLE_DEVICES": str(rank), "TORCHINDUCTOR_COMPILE_THREADS": "4", "OMP_NUM_THREADS": "2"}
            if gpus > 1:
                place |= {"RANK": str(rank), "WORLD_SIZE": str(gpus), "LOCAL_RANK": str(rank), MEETING: str(folder),
                          "NCCL_SOCKET_IFNAME": "lo"}  # fmt: skip
            self._processes.append(subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL if rank else subprocess.PIPE, text=True,
                env={**os.environ, **place},
            ))  # fmt: skip
        self.works = True

    def read(self, until: float) -> str:
        """A line of rank 0; "" where none came in time, and the group is ended."""
        output = self._processes[0].stdout
        assert output is not None
        ready = self.works and select.select([output], [], [], max(until - time.monotonic(), 0.1))[0]
        line = output.readline().strip() if ready else ""
        if not line and self.works:
            print(f"{self.peer}, {self.model}, {self.gpus} GPUs: no answer in time", flush=True)
            self.end()
        return line

    def milliseconds(self, batch: int, steps: int) -> float:
        for process in self._processes if self.works else ():
            assert process.stdin is not None
            process.stdin.write(f"{batch} {steps}\n")
            process.stdin.flush()
        return float(self.read(time.monotonic() + 30) or "nan")

    def end(self) -> None:
        self.works = False
        for process in self._processes:
            process.kill()
            process.wait()


def start_groups(models: list[str], gpus: list[int], folder: Path) -> list[Group]:
    cases = [(peer, model, count) for model in models for count in gpus for peer in PEERS]
    batches = sorted({*BATCHES, *(STRONG // count for count in gpus)})
    return [Group(*case, batches, folder / str(number)) for number, case in enumerate(cases)
            if case[0] != "DDP compiled" or case[1] not in UNCOMPILED]  # fmt: skip


def measure(groups: list[Group], rounds: int, batches: list[int]) -> dict[tuple[str, str, int, int], float]:
    """Median milliseconds of a step by peer, network, GPUs, batch; in every round each is timed once."""
    counts: dict[tuple[Group, int], int] = {}
    found: dict[tuple[str, str, int, int], list[float]] = {}
    for _ in range(rounds):
        for batch in batches:
            for group in groups:
                if (group, batch) not in counts:
                    first = group.milliseconds(batch, 5)
                    counts[group, batch] = max(int(SECONDS * 1e3 / first), 3) if first > 0 else 3
                time_of_step = group.milliseconds(batch, counts[group, batch])
                found.setdefault((group.peer, group.model, group.gpus, batch), []).append(time_of_step)
                print(f"{group.peer:12} {group.model} b{batch} x{group.gpus} {time_of_step:.4f} ms", flush=True)
    return {case: statistics.median(times) for case, times in found.items()}


def make_rows(times: dict[tuple[str, str, int, int], float], models: list[str], gpus: list[int]) -> list[Row]:
    """A row for each network, batch and number of GPUs: step times and efficiencies against the first number."""
    rows = []
    for model in models:
        for count in gpus:
            for batch in sorted({*BATCHES, STRONG // count}):
                step = {peer: times[peer, model, count, batch] for peer in PEERS
                        if (peer, model, count, batch) in times}  # fmt: skip
                peers = {peer: value for peer, value in step.items() if peer != "ours"}
                ratio = min(peers.values()) / step["ours"] if peers else float("nan")
                rows.append(Row(f"{model} b{batch} x{count}", step["ours"], peers, "ms", ratio))
    return rows


def efficiencies(times: dict[tuple[str, str, int, int], float], gpus: list[int]) -> dict[str, dict[str, float]]:
    """By case and peer: weak, time of the base over the time; strong, speed-up over GPUs, as shares of the ideal."""
    base, found = gpus[0], {}
    for (peer, model, count, batch), value in times.items():
        if count == base or (peer, model, base, batch) not in times:
            continue
        found.setdefault(f"weak {model} b{batch} x{count}", {})[peer] = times[peer, model, base, batch] / value
        if batch * count == STRONG:
            whole = times[peer, model, base, STRONG // base]
            found.setdefault(f"strong {model} {STRONG} x{count}", {})[peer] = whole * base / (value * count)
    return {case: {peer: round(value, 4) for peer, value in shares.items()} for case, shares in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ready-seconds", type=float, default=120, help="longest time for all to prepare")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        groups = start_groups(options.models, options.gpus, Path(folder))
        try:
            for group in groups:
                group.read(begun + options.ready_seconds)
            print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)
            batches = sorted({*BATCHES, *(STRONG // count for count in options.gpus)})
            times = measure(groups, options.rounds, batches)
            reduced = {f"{group.model} x{group.gpus}": group.milliseconds(0, 200) for group in groups
                       if group.peer == "ours" and group.gpus > 1}  # fmt: skip
        finally:
            for group in groups:
                group.end()
    more: dict[str, Any] = {"efficiency": efficiencies(times, options.gpus), "all-reduce ms": reduced}
    for case, shares in more["efficiency"].items():
        print(case, shares, flush=True)
    print("all-reduce ms", reduced, flush=True)
    write_results("scaling", make_rows(times, options.models, options.gpus), f"{gpu_name()}-x{max(options.gpus)}",
                  rounds=options.rounds, **more)  # fmt: skip


if __name__ == "__main__":
    main()
