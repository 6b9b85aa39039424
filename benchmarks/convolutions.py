"""Ways to convolve on the CPU, and PyTorch: milliseconds of one training iteration of the small CNN, batch 32 and 64.

    LEAFCLINIC_DATA=... python -m benchmarks.convolutions

The engine's plan and PyTorch run by turns; the other ways once. Two minutes on two cores, most of it the plain loops.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.record import Row, make_row, write_results
from core.data.idx import read_digits
from core.laboratory.convolutions import LABORATORY
from core.laboratory.digits import HOST_RUNGS, Lesson, batches, normalised, run_lesson, run_plan
from core.laboratory.network import HOST

ROUNDS = 5
GAP_SECONDS = 0.02
"""Threads that spin after their last call have gone to sleep after this long."""


def torch_seconds(lesson: Lesson, photos: np.ndarray, labels: np.ndarray) -> float:
    """Median seconds of the same iteration in PyTorch on all cores."""
    nn, padding = torch.nn, 2 if lesson.padding == "same" else 4
    side = 28 if lesson.padding == "same" else 36
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=padding), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=padding), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * (side // 2) ** 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    descent, seconds = torch.optim.SGD(net.parameters(), lesson.learning_rate), []
    for part, classes in batches(lesson, photos, labels):
        x, y = torch.from_numpy(normalised(part)).permute(0, 3, 1, 2), torch.from_numpy(classes).long()
        begin = time.perf_counter()
        descent.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        descent.step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def main() -> None:
    train = read_digits(Path(os.environ["LEAFCLINIC_DATA"]) / "mnist", "train")
    rows: list[Row] = []
    for batch in (32, 64):
        lesson, long = (Lesson(batch=batch, examples=batch * steps) for steps in (8, 40))
        torch_seconds(lesson, *train)
        pairs = []
        for _ in range(ROUNDS):
            pairs.append((run_plan(long, "cpu", train, None).seconds, torch_seconds(long, *train)))
            time.sleep(GAP_SECONDS)
        plan, torch_ms = (1e3 * statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        peers = {"torch": torch_ms}
        for way in HOST_RUNGS:
            done = run_lesson(lesson, LABORATORY, way, HOST, train, None)
            rows.append(make_row(f"lesson cnn iteration b{batch} {way}", 1e3 * done.seconds, peers, "ms"))
        ratio = statistics.median(theirs / ours for ours, theirs in pairs)
        rows.append(Row(f"lesson cnn iteration b{batch} plan", plan, peers, "ms", ratio))
    write_results("convolutions", rows)


if __name__ == "__main__":
    main()
