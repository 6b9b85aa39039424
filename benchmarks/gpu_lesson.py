"""The convolution lesson on a GPU: milliseconds of one training iteration by algorithm, by the plan, and in PyTorch."""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.pytorch import torch
from core.laboratory.digits import GPU_ALGORITHMS, Lesson, normalised, run_plan


def time_lesson(batch: int) -> tuple[dict[str, float], float]:
    """Milliseconds of one iteration on random digits: ours by algorithm, and PyTorch's."""
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (640, 28, 28, 1), np.uint8)
    labels = rng.integers(0, 10, 640).astype(np.int32)
    lesson, data = Lesson(batch=batch, examples=640), (photos, labels)
    ways = {way: run_plan(lesson, "cuda", data, None, algorithm=way) for way in (*GPU_ALGORITHMS, "auto")}
    times = {done.algorithm: done.seconds * 1e3 for done in ways.values()}
    peer = torch_lesson(batch, normalised(photos), labels) * 1e3
    return times, peer


def torch_lesson(batch: int, photos: np.ndarray, labels: np.ndarray) -> float:
    """Median seconds of the same iteration in PyTorch, float32, plain SGD."""
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10),
    ).cuda()  # fmt: skip
    descent, seconds = torch.optim.SGD(net.parameters(), 0.05), []
    for first in range(0, len(photos), batch):
        x = torch.from_numpy(photos[first : first + batch]).permute(0, 3, 1, 2).cuda()
        y = torch.from_numpy(labels[first : first + batch]).long().cuda()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        descent.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        descent.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[2:])
