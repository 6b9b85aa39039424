"""Ways to convolve on the CPU, and PyTorch: milliseconds of one training iteration of the small CNN, batch 32 and 64.

    LEAFCLINIC_DATA=... python -m benchmarks.convolutions

The engine's plan and PyTorch run interleaved; the others run once. Two minutes on two cores, mostly the plain loops.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from benchmarks.record import Row, make_row, write_results
from core.data.digits import read_digits
from core.laboratory.digits import CPU_ALGORITHMS, Lesson, run_lesson, run_plan
from core.laboratory.pytorch_baseline import problem, run_torch

ROUNDS = 5
GAP_SECONDS = 0.02
"""Threads that spin after their last call have gone to sleep after this long."""


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if missing := problem("cpu"):
        sys.exit(missing)
    train = read_digits(Path(os.environ["LEAFCLINIC_DATA"]) / "mnist", "train")
    rows: list[Row] = []
    for batch in (32, 64):
        lesson, long = (Lesson(batch=batch, examples=batch * steps) for steps in (8, 40))
        run_torch(lesson, "cpu", train, None)
        pairs = []
        for _ in range(ROUNDS):
            pairs.append((run_plan(long, "cpu", train, None).seconds, run_torch(long, "cpu", train, None).seconds))
            time.sleep(GAP_SECONDS)
        plan, torch_ms = (1e3 * statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        peers = {"torch": torch_ms}
        for way in CPU_ALGORITHMS:
            done = run_lesson(lesson, way, train, None)
            rows.append(make_row(f"lesson cnn iteration b{batch} {way}", 1e3 * done.seconds, peers, "ms"))
        ratio = statistics.median(theirs / ours for ours, theirs in pairs)
        rows.append(Row(f"lesson cnn iteration b{batch} plan", plan, peers, "ms", ratio))
    write_results("convolutions", rows)


if __name__ == "__main__":
    main()
