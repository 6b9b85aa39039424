"""Seconds until the validation photos are first read to 96.5 %, ours and PyTorch, one after the other in one run.

    python -m benchmarks.time_to_accuracy --data leaves/manifest.csv

From scratch on all of the leaves (37 classes): the clock starts with the process, so that imports, reading and
decoding the photos (no cache is there) and every validation count on both sides. Ours is the preset `leaves-fast`,
PyTorch its usual recipe (`benchmarks.torch_leaves`); both evaluate after every second epoch. Our kernels are compiled
before, as in every run but a machine's first; what that first time takes is a row of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.record import Row, gpu_name, make_row, write_results
from core.training.events import EpochDone, from_line

GOAL = 0.965


@dataclass(frozen=True)
class Reading:
    """One epoch's end: seconds since the process began, and the validation accuracy. Epoch 0: photos are ready."""

    epoch: int
    seconds: float
    accuracy: float


def read_ours(line: str) -> tuple[int, float] | None:
    if '"RunStarted"' in line:
        return 0, 0.0
    if '"EpochDone"' not in line:
        return None
    event = from_line(line)
    assert isinstance(event, EpochDone)
    return event.epoch + 1, event.validation_accuracy


def read_torch(line: str) -> tuple[int, float] | None:
    if not line.startswith("{"):
        return None
    told = json.loads(line)
    return int(told["epoch"]), float(told["accuracy"])


def race(
    command: Sequence[str], read: Callable[[str], tuple[int, float] | None], goal: float, seconds: float,
    epochs: int = 0,
) -> list[Reading]:  # fmt: skip
    """The readings of a program until one reaches the goal, its epochs or its time are over; then it is stopped."""
    begin, readings = time.monotonic(), []
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = read(line)
            if found is None:
                continue
            readings.append(Reading(found[0], time.monotonic() - begin, found[1]))
            if found[1] >= goal or readings[-1].seconds > seconds or found[0] == epochs > 0:
                break
        process.kill()
    return readings


def run_ours(manifest: str, preset: Sequence[str], goal: float, seconds: float) -> tuple[list[Reading], float]:
    """Readings, and seconds that compiling the kernels took before."""
    with tempfile.TemporaryDirectory() as home:
        common = ["-m", "core.train", "--data", manifest, "--test", "0", "--cache", f"{home}/cache", *preset]
        begin = time.monotonic()
        subprocess.run([sys.executable, *common, "--dry-run"], check=True, stdout=subprocess.DEVNULL)
        compiled = time.monotonic() - begin
        return race([*common, "--out", f"{home}/run", "--json"], read_ours, goal, seconds), compiled


def reached(readings: Sequence[Reading], goal: float) -> float:
    """Seconds to the first reading of the goal, infinity if there is none."""
    return next((r.seconds for r in readings if r.accuracy >= goal), float("inf"))


def show(name: str, readings: Sequence[Reading]) -> None:
    shown = [r for r in readings if r.epoch % 4 == 0 or r is readings[-1]]
    print(name, *(f"{r.epoch}:{r.seconds:.1f}s {100 * r.accuracy:.2f}%" for r in shown), sep="  ", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="manifest of the leaves")
    parser.add_argument("--goal", type=float, default=GOAL)
    parser.add_argument("--seconds", type=float, default=200, help="longest time for each")
    parser.add_argument("--only", choices=("ours", "pytorch"), default="")
    parser.add_argument("--preset", default="leaves-fast")
    parser.add_argument("--validate-every", default="2", help="epochs between two validations, of both")
    options, changes = parser.parse_known_args()
    every = ["--validate-every", options.validate_every]
    mine: list[Reading] = []
    other: list[Reading] = []
    compiled = 0.0
    if options.only != "pytorch":
        chosen = ["--preset", options.preset, *every, *changes]
        mine, compiled = run_ours(options.data, chosen, options.goal, options.seconds)
        show("ours", mine)
    if options.only != "ours":
        command = ["-m", "benchmarks.torch_leaves", options.data, *every]
        other = race(command, read_torch, options.goal, options.seconds)
        show("pytorch", other)
    if options.only:
        return 0
    ours, theirs = reached(mine, options.goal), reached(other, options.goal)
    epochs = {name: found[-1].epoch if found else 0 for name, found in (("ours", mine), ("pytorch", other))}
    curves = {name: [[r.epoch, round(r.seconds, 2), round(r.accuracy, 4)] for r in found]
              for name, found in (("ours", mine), ("pytorch", other))}  # fmt: skip
    rows = [
        make_row(f"leaves validation {100 * options.goal:g} %", ours, {"pytorch eager": theirs}, "s"),
        Row("start with kernels to compile or to load, no photos", compiled, {}, "s"),
    ]
    write_results("time_to_accuracy", rows, gpu_name(), epochs=epochs, curves=curves, changes=changes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
