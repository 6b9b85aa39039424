"""The convolution lesson on a GPU: milliseconds of one training iteration by rungs, by the plan, and in PyTorch."""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from core.device import Optimizer, PhotoBatch
from core.gpu.table import TABLE
from core.laboratory.digits import DEVICE_RUNGS, Lesson, normalised, run_lesson
from core.laboratory.network import cuda_backend
from core.models.cnn import cnn
from core.models.init import initial_weights
from core.models.options import Options
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.plan import compile_plan


def time_lesson(batch: int) -> tuple[dict[str, float], float]:
    """Milliseconds of one iteration on random digits: ours by rungs, and PyTorch's."""
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (640, 28, 28, 1), np.uint8)
    labels = rng.integers(0, 10, 640).astype(np.int32)
    lesson, data = Lesson(batch=batch, examples=640), (photos, labels)
    times = {rung: run_lesson(lesson, TABLE, rung, cuda_backend(), data, None).seconds * 1e3 for rung in DEVICE_RUNGS}
    peer = torch_lesson(batch, normalised(photos), labels) * 1e3
    times["plan"] = plan_lesson(batch, photos, labels) * 1e3
    return times, peer


def plan_lesson(batch: int, photos: np.ndarray, labels: np.ndarray) -> float:
    """Median seconds of a step of the engine's own plan, photos from the host, loss back on the host."""
    graph = with_loss(cnn(Options(classes=10, image_size=28, channels=1, dropout=0.0)), 0.0, ())
    plan = compile_plan(graph, device="cuda", batch=batch, training=True, optimizer=Optimizer("sgd", 0.0, False))
    plan.load(initial_weights(graph, 0))
    rows, seconds = identity_augmentation(batch, (28, 28), (28, 28)), []
    for first in range(0, len(photos), batch):
        chosen = PhotoBatch(np.repeat(photos[first : first + batch], 3, -1), rows, labels[first : first + batch])
        begin = time.perf_counter()
        plan.train_step(chosen, 0.05)
        seconds.append(time.perf_counter() - begin)
    plan.close()
    return statistics.median(seconds[2:])


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
