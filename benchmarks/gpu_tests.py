"""All tests that need a GPU, in processes side by side; and memcheck over whole steps of the networks.

    python -m benchmarks.gpu_tests [--processes 10] [--seconds 400] [--memcheck]

Most of a GPU test is compilation, so ten processes on sixteen cores take a sixth of the time of one. Tests of memory
look at what the driver has left and run by themselves afterwards. Written to results/gpu-tests-<gpu>.json, with the
first line of every failure. The tests are found by their mark, without this project's settings of pytest, whose
plugins a machine for training need not have.
"""

from __future__ import annotations

import argparse
import json
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
from core.models.architectures import build
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

STEPS = (
    ("squeezenet1_0", 224, 33), ("squeezenet1_1", 224, 33), ("squeezenet1_0", 96, 5), ("squeezenet1_1", 75, 3),
    ("squeezenet1_1_bn", 128, 9), ("mobilenetv2", 96, 5), ("squeezenet1_0", 224, 256),
)  # fmt: skip
"""Networks, sides and batches that memcheck looks at: Hopper's own kernels among them, and odd sizes."""


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


def take_steps() -> None:
    """A training step and predictions of each of `STEPS`: what memcheck watches."""
    for name, side, count in STEPS:
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


def start_memcheck() -> subprocess.Popen[str]:
    """compute-sanitizer over `take_steps`, in a process of its own."""
    watched = [sys.executable, "-m", "benchmarks.gpu_tests", "--steps"]
    command = ["compute-sanitizer", "--tool", "memcheck", "--print-limit", "5", *watched]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def read_memcheck(said: str) -> dict[str, object]:
    """Its last line, which counts the errors, and which steps it saw to their end."""
    lines = said.strip().splitlines()
    seen = [line for line in lines if not line.startswith("=")]
    said = lines[-1].strip("= ") if lines else "nothing"
    return {"networks, sides and batches": seen, "of": len(STEPS), "said": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--memcheck", action="store_true", help="also memcheck, beside the tests (needs CUDA's tools)")
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        take_steps()
        return
    memcheck = start_memcheck() if options.memcheck else None
    names = collect()
    alone = [name for name in names if any(word in name for word in ALONE)]
    together = run_side_by_side([n for n in names if n not in alone], options.processes, options.seconds)
    watched = {} if memcheck is None else {"memcheck": read_memcheck(memcheck.communicate()[0])}
    memory = run_side_by_side(alone, 1, options.seconds)
    result = {
        "what": "python -m benchmarks.gpu_tests", "machine": gpu_name(), "versions": versions(), "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "side by side": asdict(together), "memory, alone": asdict(memory), **watched,
    }
    path = FOLDER / f"gpu-tests-{gpu_name().lower().replace(' ', '-')}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    sys.exit(bool(together.failed + memory.failed))


def gpu_name() -> str:
    from core.gpu.driver.device import open_device

    return open_device().name


if __name__ == "__main__":
    main()
