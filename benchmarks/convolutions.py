"""Ways to convolve on the CPU, and PyTorch: seconds of one training iteration of the small CNN, batch 32 and 64.

    LEAFCLINIC_DATA=... python -m benchmarks.convolutions
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
        lesson = Lesson(batch=batch, examples=batch * 8)
        peers = {"torch": 1e3 * torch_seconds(lesson, *train)}
        for way in (*HOST_RUNGS, "plan"):
            done = run_plan(lesson, "cpu", train, None) if way == "plan" else run_lesson(
                lesson, LABORATORY, way, HOST, train, None)
            rows.append(make_row(f"lesson cnn iteration b{batch} {way}", 1e3 * done.seconds, peers, "ms"))
    write_results("convolutions", rows)


if __name__ == "__main__":
    main()
