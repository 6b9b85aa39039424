"""All tests that need a GPU, in processes side by side; and compute-sanitizer over whole steps of the networks.

    python -m benchmarks.gpu_tests [--processes 10] [--seconds 400] [--memcheck] [--racecheck] [--no-tests]

Most of a GPU test is compilation, so ten processes on sixteen cores take a sixth of the time of one. Tests of memory
look at what the driver has left and run by themselves afterwards. Written to results/gpu-tests-<gpu>.json, with the
first line of every failure; without the tests to results/sanitizers-<gpu>.json. The tests are found by their mark,
without this project's settings of pytest, whose plugins a machine for training need not have.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.record import FOLDER, commit, versions
from core.device import Optimizer, PhotoBatch
from core.gpu.plan import CudaPlan
from core.models.architectures import MODELS, build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights

PYTEST = (
    sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-c", "/dev/null", "--rootdir", ".", "--import-mode=importlib",
    "-p", "no:cacheprovider",
)  # fmt: skip
ALONE = ("memory", "too_large")
"""Words in the names of tests that measure what is free on the device."""

STEPS = {
    "memcheck": (
        ("mobilenetv3_small", 96, 5), ("squeezenet1_1", 75, 3), ("mobilenetv2", 96, 5), ("squeezenet1_1_bn", 128, 9),
        ("squeezenet1_0", 96, 5), ("squeezenet1_0", 224, 33), ("squeezenet1_1", 224, 33), ("squeezenet1_0", 224, 256),
    ),
    "racecheck": (
        ("squeezenet1_1", 75, 3), ("mobilenetv3_small", 64, 3), ("mobilenetv2", 64, 3), ("squeezenet1_1_bn", 64, 5),
        ("squeezenet1_0", 96, 33),
    ),
}  # fmt: skip
"""Networks, sides and batches that each tool looks at: Hopper's own kernels among them, and odd sizes.

Racecheck, which finds unordered accesses to shared memory, takes some ten times as long: small shapes of every family.
"""


FOUND = re.compile("Invalid|Error: |Race reported|hazard at")
"""Lines of a tool's findings."""


@dataclass(frozen=True)
class Outcome:
    """How many tests did what in so many seconds; `failures` by name with the first line of each."""

    passed: int
    failed: int
    skipped: int
    seconds: float
    failures: dict[str, str]


def collect() -> list[str]:
    """The tests' names as pytest takes them."""
    command = [*PYTEST, "--collect-only", "tests/core"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if "::" in line and not line.startswith("ERROR")]


def run_side_by_side(names: Sequence[str], processes: int, seconds: float) -> Outcome:
    """Every so many-th test in a process of its own; what has not ended in time is killed and counts as failed."""
    begin = time.monotonic()
    shares = [share for first in range(processes) if (share := names[first::processes])]
    with tempfile.TemporaryDirectory() as home:
        reports = [Path(home) / f"{number}.xml" for number in range(len(shares))]
        running = [
            subprocess.Popen([*PYTEST, f"--junitxml={report}", *share], stdout=subprocess.DEVNULL)
            for share, report in zip(shares, reports, strict=True)
        ]
        for process in running:
            try:
                process.wait(max(1.0, seconds - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        outcomes = [read_report(*pair) for pair in zip(reports, shares, strict=True)]
    joined = {name: line for outcome in outcomes for name, line in outcome.failures.items()}
    passed, failed, skipped = (sum(getattr(o, name) for o in outcomes) for name in ("passed", "failed", "skipped"))
    return Outcome(passed, failed, skipped, round(time.monotonic() - begin, 1), joined)


def read_report(report: Path, names: Sequence[str]) -> Outcome:
    """What pytest wrote about these tests; where it wrote nothing, none of them counts as passed."""
    if not report.exists():
        return Outcome(0, len(names), 0, 0.0, dict.fromkeys(names, "its process did not end in time, or died"))
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    failures = {
        f"{case.get('classname')}::{case.get('name')}": (said.get("message") or "").split("\n")[0][:300]
        for case in suite.iter("testcase") for said in (*case.iter("failure"), *case.iter("error"))
    }
    skipped, every = int(suite.get("skipped", 0)), int(suite.get("tests", 0))
    return Outcome(every - len(failures) - skipped, len(failures), skipped, float(suite.get("time", 0)), failures)


def take_steps(tool: str) -> None:
    """A training step and predictions of each of the tool's `STEPS`: what it watches."""
    for name, side, count in STEPS[tool]:
        network = build(name, 5, side, dropout=0.0)
        weights, rows = initial_weights(network, 0), identity_augmentation(count, (side, side), (side, side))
        photos = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
        batch = PhotoBatch(photos, rows, np.arange(count, dtype=np.int32) % 5)
        plan = CudaPlan(
            with_loss(network, 0.1, ()), batch=count, training=True, precision="mixed", optimizer=Optimizer()
        )
        plan.load(weights)
        plan.gradient(batch)
        plan.close()
        for size in (count, 1):
            plan = CudaPlan(fold_batch_norm(network), batch=size, training=False, precision="mixed")
            plan.load(fold_weights(network, weights))
            plan.predict(PhotoBatch(photos[:size], rows[:size], batch.labels[:size]))
            plan.close()
        print(name, side, f"b{count}", flush=True)


def start_sanitizer(tool: str) -> subprocess.Popen[str]:
    """compute-sanitizer over `take_steps`, in a process of its own."""
    watched = [sys.executable, "-m", "benchmarks.gpu_tests", "--steps", tool]
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "5", *watched]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def end_in(process: subprocess.Popen[str], seconds: float) -> str:
    """What the process says until it ends, or is killed with what it started."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0] + "did not end in time"


def read_sanitizer(tool: str, said: str) -> dict[str, object]:
    """Its last line, which counts the errors, the first errors, and which steps it saw to their end."""
    lines = said.strip().splitlines()
    errors = [line.strip("= ") for line in lines if line.startswith("=") and FOUND.search(line)][:9]
    seen = [line for line in lines if line.partition(" ")[0] in MODELS]
    last = lines[-1].strip("= ") if lines else "nothing"
    return {"networks, sides and batches": seen, "of": len(STEPS[tool]), "said": last, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=400)
    for tool in STEPS:
        parser.add_argument(f"--{tool}", action="store_true", help=f"also {tool}, beside the tests (CUDA's tools)")
    parser.add_argument("--no-tests", action="store_true", help="only compute-sanitizer")
    parser.add_argument("--steps", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        take_steps(options.steps)
        return
    tools = {tool: start_sanitizer(tool) for tool in STEPS if getattr(options, tool)}
    tested = {} if options.no_tests else run_tests(options.processes, options.seconds)
    watched = {tool: read_sanitizer(tool, end_in(process, options.seconds)) for tool, process in tools.items()}
    result = {
        "what": "python -m benchmarks.gpu_tests", "machine": gpu_name(), "versions": versions(), "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: asdict(outcome) for name, outcome in tested.items()}, **watched,
    }
    kind = "gpu-tests" if tested else "sanitizers"
    path = FOLDER / f"{kind}-{gpu_name().lower().replace(' ', '-')}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    sys.exit(any(outcome.failed for outcome in tested.values()))


def run_tests(processes: int, seconds: float) -> dict[str, Outcome]:
    """All tests side by side, then those of memory by themselves."""
    names = collect()
    alone = [name for name in names if any(word in name for word in ALONE)]
    together = run_side_by_side([n for n in names if n not in alone], processes, seconds)
    return {"side by side": together, "memory, alone": run_side_by_side(alone, 1, seconds)}


def gpu_name() -> str:
    from core.gpu.driver.device import open_device

    return open_device().name


if __name__ == "__main__":
    main()
