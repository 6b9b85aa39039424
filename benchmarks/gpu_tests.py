"""All tests that need a GPU, in processes side by side; and compute-sanitizer over whole steps of the networks.

    python -m benchmarks.gpu_tests [--processes 14] [--seconds 400] [--memcheck] [--racecheck] [--no-tests]

Most of a GPU test is compilation, so fourteen processes on sixteen cores take a tenth of the time of one. Tests of
memory look at what the driver has left and run by themselves first, then all others and the sanitizers, beside each
other. Each of the two parts ends after `--seconds`, a test after `--test-seconds`. results/gpu-tests-<gpu>.json is
written again every few seconds, with failures, tests that have begun and not ended, and the slowest; without the tests
it is results/sanitizers-<gpu>.json. The tests take three minutes on an H200. They are found by their mark, without this
project's settings of pytest.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks import gpu_test_log
from benchmarks.gpu_test_log import use_share_of_cores
from benchmarks.record import FOLDER, commit, gpu_name, versions
from core.device import Optimizer, PhotoBatch
from core.gpu.plan import CudaPlan
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights

PYTEST = (
    sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-c", "/dev/null", "--rootdir", ".", "--import-mode=importlib",
    "-p", "no:cacheprovider", "-p", "benchmarks.gpu_test_log", "--dist", "worksteal", "--timeout-method", "thread",
)  # fmt: skip
ALONE = "memory or too_large or kernels_course"
"""Words in the names of tests that measure what is free on the device."""
PAUSE = 2.0
"""Seconds between two looks at what is running."""

STEPS = {
    "memcheck": (
        ("mobilenetv3_small", 64, 3, "auto"), ("squeezenet1_1", 75, 3, "auto"), ("mobilenetv2", 96, 5, "auto"),
        ("squeezenet1_1_bn", 128, 9, "auto"), ("squeezenet1_0", 96, 5, "auto"), ("squeezenet1_0", 224, 33, "auto"),
        ("squeezenet1_1", 224, 33, "auto"), ("squeezenet1_0", 224, 256, "auto"), ("mobilenetv2", 32, 2, "shared"),
    ),
    "racecheck": (
        ("cnn", 28, 3, "shared"), ("cnn", 28, 3, "im2col"), ("mlp", 28, 3, "shared"), ("mlp", 28, 3, "tensor_core"),
        ("squeezenet1_1", 64, 3, "auto"), ("squeezenet1_1_bn", 64, 5, "auto"), ("mobilenetv2", 64, 3, "auto"),
        ("mobilenetv3_small", 64, 3, "auto"), ("mobilenetv2", 32, 1, "shared"), ("squeezenet1_0", 64, 33, "auto"),
    ),
}  # fmt: skip
"""Networks, sides, batches and algorithms that each tool looks at, each in a process of its own.

Hopper's own kernels are among them, and odd sizes; "auto" in mixed precision, the others in float32. Racecheck, which
finds unordered accesses to shared memory, takes some ten times as long: small shapes of every family.
"""


FOUND = re.compile("Invalid|Error: |Race reported|hazard at")
"""Lines of a tool's findings."""


@dataclass(frozen=True)
class Part:
    """A process in a session of its own, the file it writes to, and how what is written there reads."""

    name: str
    process: subprocess.Popen[bytes]
    path: Path
    read: Callable[[str], dict[str, object]]

    def found(self) -> dict[str, object]:
        """What it has written so far, and how the process ended if it did."""
        said = self.path.read_text(encoding="utf-8", errors="replace") if self.path.exists() else ""
        code = self.process.poll()
        return {**self.read(said), "ended": "still running" if code is None else f"with {code}"}


def start_tests(name: str, home: Path, files: Sequence[str], *options: str) -> Part:
    """pytest over the tests that need a GPU, which logs them one by one."""
    path = home / f"{name}.jsonl"
    process = subprocess.Popen(
        [*PYTEST, *options, *files], start_new_session=True,
        env={**os.environ, gpu_test_log.FILE: str(path)},
    )  # fmt: skip
    return Part(name, process, path, lambda said: asdict(gpu_test_log.read_log(said.splitlines(keepends=True))))


def watch(parts: Sequence[Part], seconds: float, report: Callable[[Part], None]) -> None:
    """Report every part until it ends; after so many seconds it is killed with all that it started."""
    deadline = time.monotonic() + seconds
    running = list(parts)
    while running:
        left = max(0.0, min(PAUSE, deadline - time.monotonic()))
        with suppress(subprocess.TimeoutExpired):
            running[0].process.wait(left)
        if time.monotonic() >= deadline:
            for part in running:
                if part.process.poll() is None:
                    os.killpg(part.process.pid, signal.SIGKILL)
                    part.process.wait()
        for part in running:
            report(part)
        running = [part for part in running if part.process.poll() is None]


def test_files() -> list[str]:
    """The files with tests that need a GPU."""
    files = sorted(Path("tests").rglob("test_*.py"))
    return [str(file) for file in files if "mark.gpu" in file.read_text("utf-8")]


def take_steps(tool: str, number: int) -> None:
    """A training step and predictions of one of the tool's `STEPS`: what it watches."""
    use_share_of_cores(number, 4)
    name, side, count, algorithm = STEPS[tool][number]
    network, precision = build(name, 5, side, dropout=0.0), "mixed" if algorithm == "auto" else "float32"
    weights, augmentation = initial_weights(network, 0), identity_augmentation(count, side, side)
    depth = network.photo_shape[2]
    photos = np.random.default_rng(0).integers(0, 256, (count, side, side, depth), np.uint8)
    batch = PhotoBatch(photos, augmentation, np.arange(count, dtype=np.int32) % 5)
    plan = CudaPlan(
        with_loss(network, 0.1, ()), batch=count, training=True, precision=precision, algorithm=algorithm,
        optimizer=Optimizer(),
    )  # fmt: skip
    plan.load(weights)
    plan.gradient(batch)
    plan.update(0.01)
    plan.close()
    for size in (count, 1):
        plan = CudaPlan(fold_batch_norm(network), batch=size, training=False, precision=precision, algorithm=algorithm)
        plan.load(fold_weights(network, weights))
        plan.predict(PhotoBatch(photos[:size], augmentation[:size], batch.labels[:size]))
        plan.close()
    print("all steps taken", flush=True)


def start_sanitizer(tool: str, number: int, home: Path) -> Part:
    """compute-sanitizer over `take_steps`."""
    name, side, count, algorithm = STEPS[tool][number]
    watched = [sys.executable, "-m", "benchmarks.gpu_tests", "--steps", tool, str(number)]
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "5", *watched]
    path = home / f"{tool}-{number}.txt"
    with path.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    return Part(f"{tool} {name} {side} b{count} {algorithm}", process, path, read_sanitizer)


def read_sanitizer(said: str) -> dict[str, object]:
    """Whether the steps were taken, the tool's last line, which counts the errors, and the first errors."""
    lines = said.strip().splitlines()
    errors = [line.strip("= ") for line in lines if line.startswith("=") and FOUND.search(line)][:9]
    last = lines[-1].strip("= ") if lines else "nothing"
    return {"all steps taken": "all steps taken" in lines, "said": last, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=400, help="after which each of the two parts is ended")
    parser.add_argument("--test-seconds", type=float, default=240, help="after which a test is ended")
    for tool in STEPS:
        parser.add_argument(f"--{tool}", nargs="?", const=".", help=f"also {tool} (CUDA's tools); of networks whose "
                            "names match the expression")
    parser.add_argument("--no-tests", action="store_true", help="only compute-sanitizer")
    parser.add_argument("--only", default="", help="only tests whose names match (pytest's -k), none of memory")
    parser.add_argument("--steps", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        take_steps(options.steps[0], int(options.steps[1]))
        return
    sys.exit(run_parts(options))


def run_parts(options: argparse.Namespace) -> bool:
    """The tests of memory alone, then the others and the sanitizers side by side; whether something failed."""
    kind = "sanitizers" if options.no_tests else "gpu-tests"
    path = FOLDER / f"{kind}-{gpu_name()}.json"
    result: dict[str, object] = {
        "what": "python -m benchmarks.gpu_tests", "machine": gpu_name(), "versions": versions(), "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    bad: dict[str, bool] = {}

    def report(part: Part) -> None:
        found = part.found()
        result[part.name] = found
        bad[part.name] = part.process.poll() not in (None, 0) or bool(found.get("errors"))
        print(part.name, {k: v for k, v in found.items() if k != "slowest"}, flush=True)
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder:
        home, files, limit = Path(folder), test_files(), ("--timeout", str(options.test_seconds))
        word = f" and ({options.only})" if options.only else ""
        if not (options.no_tests or options.only):
            one = ("-n", "1", "-k", ALONE)
            watch([start_tests("memory, alone", home, files, *limit, *one)], options.seconds, report)
        wanted = [
            (tool, number) for tool in STEPS for number, step in enumerate(STEPS[tool])
            if getattr(options, tool) and re.search(getattr(options, tool), " ".join(map(str, step)))
        ]  # fmt: skip
        parts = [start_sanitizer(*one, home) for one in wanted]
        if not options.no_tests:
            many = ("-n", str(options.processes), "-k", f"not ({ALONE}){word}")
            parts.append(start_tests("side by side", home, files, *limit, *many))
        watch(parts, options.seconds, report)
    print(path.read_text(encoding="utf-8"))
    return any(bad.values())


if __name__ == "__main__":
    main()
