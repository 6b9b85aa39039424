"""How long the first training takes to begin, and the first diagnosis to come: kernels never compiled, and compiled
once.

    python -m benchmarks.first_use [--machine NAME]

A diagnosis counts from the moment when the window is drawn, with the shipped model and an empty folder of compiled
kernels. A training counts from the start of its process, the imports included; its photos are drawn beforehand. Later
starts find the kernels of the first. It takes a minute of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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
STARTS = 3
"""Later starts of each; the slowest counts."""
WINDOW = """
import sys, time
from app.processes.entry import start_ahead
start_ahead()
from PySide6.QtWidgets import QApplication
from app.application import start
application = QApplication([])
program = start(application, sys.argv[1:])
application.processEvents()
application.processEvents()
begin, end = time.perf_counter(), time.perf_counter() + 300
while time.perf_counter() < end and not (program.diagnosis.rows.rows and program.diagnosis.rows.rows[0].done):
    application.processEvents()
    time.sleep(0.005)
if program.diagnosis.rows.rows[0].verdict:
    print(time.perf_counter() - begin)
program.window.hide()
program.close()
"""


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


def start_window(photo: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Open the window with a photo: seconds from the drawn window to the answer, and processor time of all processes.
    Raises RuntimeError if there is no answer."""
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, "-c", WINDOW, str(photo)], capture_output=True, text=True, check=False,
        env={"QT_QPA_PLATFORM": "offscreen", **os.environ, **environment},
    )  # fmt: skip
    if not done.stdout:
        raise RuntimeError(f"the window ended without a diagnosis: {done.stderr}")
    return float(done.stdout), processor_seconds() - before


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="", help="short name of this machine in the file name")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        photos = write_demo(home / "photos")
        environment = {"NUMBA_CACHE_DIR": str(home / "kernels")}
        cold = start_training(photos, home / "cold", environment)
        warm = [start_training(photos, home / f"warm{turn}", environment) for turn in range(STARTS)]
        photo = next(photos.parent.rglob("*.jpg"))
        fresh = {"NUMBA_CACHE_DIR": str(home / "diagnosis"), "LEAFCLINIC_HOME": str(home / "window"),
                 "PYTHONDONTWRITEBYTECODE": ""}  # pip compiles the modules, and so do we  # fmt: skip
        answers, used = zip(*(start_window(photo, fresh) for _ in range(1 + STARTS)), strict=True)
    rows: list[Row] = [
        make_row("kernels compiled, the first time ever", cold.compiled, {"asked": COLD_SECONDS}, "s"),
        make_row("first training step, the first time ever", cold.first_step, {"asked": COLD_SECONDS}, "s"),
        make_row("first training step afterwards", max(w.first_step for w in warm), {"asked": WARM_SECONDS}, "s"),
        make_row("first diagnosis, the first time ever", answers[0], {"asked": COLD_ANSWER}, "s"),
        make_row("first diagnosis of a later start", max(answers[1:]), {"asked": WARM_ANSWER}, "s"),
    ]
    write_results(
        "first_use", rows, chosen.machine, progress_shown=cold.shown,
        warm_seconds=[round(w.first_step, 2) for w in warm],
        diagnosis_processor_seconds=[round(seconds, 2) for seconds in used],
    )  # fmt: skip


if __name__ == "__main__":
    main()
