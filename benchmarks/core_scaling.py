"""The small CNN on 1, 2, 4, 8 and 16 cores: milliseconds of a training iteration by each way to convolve on the CPU, by
the engine's plan and by PyTorch.

    python -m benchmarks.core_scaling [--cores 1 2 4 8 16] [--batches 64] [--machine NAME]
    python -m benchmarks.core_scaling --cores 2 --batches 32 64      # the picture of docs/kernels.md

Each count of cores is a process of its own, one after the other. Rounds of the plan and PyTorch are interleaved, and
their medians are stored. Images are random: their values do not change a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import product

import numpy as np

from benchmarks.record import Row, make_row, write_results

STEPS, FAST_STEPS, ROUNDS = 3, 40, 9


def measure(batch: int) -> dict[str, float]:
    """Milliseconds of every way on the cores that this process may use."""
    from benchmarks.pytorch import torch
    from core.laboratory.digits import CPU_ALGORITHMS, Lesson, run_lesson, run_plan
    from core.laboratory.pytorch_baseline import run_torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rng = np.random.default_rng(0)
    train = rng.integers(0, 256, (batch * FAST_STEPS, 28, 28, 1), np.uint8), rng.integers(0, 10, batch * FAST_STEPS)
    slow, fast = (Lesson(batch=batch, examples=batch * steps) for steps in (STEPS, FAST_STEPS))
    found = {way: 1e3 * run_lesson(slow, way, train, None).seconds for way in CPU_ALGORITHMS}
    run_torch(slow, "cpu", train, None)
    pairs = [(run_plan(fast, "cpu", train, None).seconds, run_torch(fast, "cpu", train, None).seconds)
             for _ in range(ROUNDS)]  # fmt: skip
    plan, torch_run = np.median(pairs, axis=0)
    return found | {"plan": 1e3 * plan, "PyTorch": 1e3 * torch_run}


def start(cores: list[int], batch: int) -> subprocess.Popen[str]:
    """A process that measures on these cores; BLAS and OpenMP get as many threads."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(len(cores)))
    command = [sys.executable, "-m", "benchmarks.core_scaling", "--batches", str(batch), "--child", *map(str, cores)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--batches", type=int, nargs="+", default=[64])
    parser.add_argument("--child", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    if options.child:
        os.sched_setaffinity(0, options.child)
        print(json.dumps(measure(*options.batches)), flush=True)
        return
    rows: list[Row] = []
    algorithms: dict[str, dict[str, float]] = {}
    available = sorted(os.sched_getaffinity(0))
    cases = product((count for count in options.cores if count <= len(available)), options.batches)
    for count, batch in cases:
        found = json.loads(start(available[:count], batch).communicate()[0].splitlines()[-1])
        name = f"lesson cnn iteration b{batch}, {count} cores"
        algorithms[name] = found
        ours = {way: ms for way, ms in found.items() if way != "PyTorch"}
        rows.append(make_row(name, min(ours.values()), {"PyTorch": found["PyTorch"]}, "ms"))
        print(name, {way: round(ms, 2) for way, ms in found.items()}, flush=True)
    write_results("core_scaling", rows, options.machine, algorithms=algorithms)


if __name__ == "__main__":
    main()
