"""How long the first training takes to begin, and the first diagnosis to come: kernels never compiled, and compiled
once.

    python -m benchmarks.first_use [--machine NAME]

Each start is `python -m core.train --demo --json` in a process of its own with an empty folder of compiled kernels;
the second start finds what the first one left. The demo's photos are drawn beforehand. Seconds count from the start
of the process, the imports included.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import Row, make_row, write_results
from core.data.synthetic import write_demo

COLD_SECONDS, WARM_SECONDS = 40.0, 10.0
"""Asked of a training."""
COLD_ANSWER, WARM_ANSWER = 5.0, 1.0
"""Asked of a diagnosis, after the window is there."""


@dataclass(frozen=True)
class Start:
    """Seconds from the start of the process; `shown` counts the steps of progress told while kernels compiled."""

    compiled: float
    first_step: float
    shown: int


def start_training(photos: Path, out: Path, environment: Mapping[str, str]) -> Start:
    """Start a training, stop it after its first step. Raises RuntimeError if it ends before."""
    command = [sys.executable, "-m", "core.train", "--data", str(photos), "--preset", "demo", "--device", "cpu",
               "--epochs", "2", "--cache", str(out / "cache"), "--out", str(out / "run"), "--json"]  # fmt: skip
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    compiled, shown = 0.0, 0
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        now = time.perf_counter() - begin
        if event["event"] == "Progress" and event["stage"] == "compile":
            shown += 1
            compiled = now if event["done"] == event["total"] else compiled
        if event["event"] == "StepDone":
            process.send_signal(signal.SIGINT)
            process.communicate()
            return Start(compiled, now, shown)
    raise RuntimeError(f"the training ended before its first step: {process.communicate()[1]}")


def start_diagnosing(photo: Path, environment: Mapping[str, str]) -> float:
    """Seconds from the start of the window's process that diagnoses to its answer on a photo, with the shipped model.
    Raises RuntimeError if there is none."""
    model = Path(__file__).parents[1] / "resources" / "models" / "leaves.safetensors"
    asked = ({"model": str(model), "device": "cpu"}, {"id": 0, "path": str(photo), "crop": True})
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "app", "--process", "diagnose"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, **environment},
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(json.dumps(line) + "\n" for line in asked))
        process.stdin.flush()
        for line in process.stdout:
            if "verdict" in json.loads(line):
                seconds = time.perf_counter() - begin
                process.stdin.close()
                return seconds
    raise RuntimeError("the diagnosis ended without an answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="", help="short name of this machine in the file name")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        photos = write_demo(home / "photos")
        environment = {"NUMBA_CACHE_DIR": str(home / "kernels")}
        cold = start_training(photos, home / "cold", environment)
        photo = next(photos.parent.rglob("*.jpg"))
        fresh = {"NUMBA_CACHE_DIR": str(home / "diagnosis")}
        answers = [start_diagnosing(photo, fresh) for _ in range(4)]
        warm = [start_training(photos, home / f"warm{turn}", environment) for turn in range(3)]
    rows: list[Row] = [
        make_row("kernels compiled, the first time ever", cold.compiled, {"asked": COLD_SECONDS}, "s"),
        make_row("first training step, the first time ever", cold.first_step, {"asked": COLD_SECONDS}, "s"),
        make_row("first training step afterwards", max(w.first_step for w in warm), {"asked": WARM_SECONDS}, "s"),
        make_row("first diagnosis, the first time ever", answers[0], {"asked": COLD_ANSWER}, "s"),
        make_row("first diagnosis of a later start", max(answers[1:]), {"asked": WARM_ANSWER}, "s"),
    ]
    write_results("first_use", rows, chosen.machine, progress_shown=cold.shown,
                  warm_seconds=[round(w.first_step, 2) for w in warm])  # fmt: skip


if __name__ == "__main__":
    main()
