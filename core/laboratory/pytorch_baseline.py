"""PyTorch as the baseline of the convolution algorithms: the same network, weights, digits and steps."""

from __future__ import annotations

import time
from collections import OrderedDict
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from core.laboratory.digits import Lesson, Outcome, Report, batches, keep_quiet, lesson_graph, normalised
from core.models.cnn import PADDINGS
from core.models.init import initial_weights
from core.models.weights import to_torch
from core.ops.contract import Array

NAME: Final = "PyTorch"
NO_GPU: Final = "The installed PyTorch, the baseline, cannot use the GPU. Install its build for CUDA."
MISSING: Final = "PyTorch, the baseline, is not installed. Install it with: pip install '.[compare]'"


def problem(device: str) -> str | None:
    """Return why PyTorch cannot run on the device, as a sentence, or None."""
    if find_spec("torch") is None:
        return MISSING
    torch: Any = import_module("torch")
    return NO_GPU if device == "cuda" and not torch.cuda.is_available() else None


def run_torch(
    lesson: Lesson, device: str, train: tuple[Array, Array], test: tuple[Array, Array] | None,
    report: Report = keep_quiet,
) -> Outcome:  # fmt: skip
    """Run the lesson in PyTorch: float32, plain SGD, all cores or the GPU. Check `problem` first."""
    torch: Any = import_module("torch")
    net = _network(torch, lesson).to(device)
    descent, seconds, loss = torch.optim.SGD(net.parameters(), lesson.learning_rate), [], 0.0
    for photos, labels in batches(lesson, *train):
        x, y = _photos(torch, photos, device), torch.from_numpy(labels).long().to(device)
        begin = time.perf_counter()
        descent.zero_grad()
        error = torch.nn.functional.cross_entropy(net(x), y)
        error.backward()
        descent.step()
        loss = error.item()  # waits for the device
        seconds.append(time.perf_counter() - begin)
        report("training", len(seconds) * lesson.batch, min(lesson.examples, len(train[0])))
    accuracy = None if test is None else _accuracy(torch, net, device, *test)
    return Outcome(NAME, float(np.median(seconds[1:] or seconds)), loss, accuracy)


def _network(torch: Any, lesson: Lesson) -> Any:
    nn, padding = torch.nn, PADDINGS[lesson.padding][0]
    side = 28 + 2 * (2 * padding - 4)
    net = nn.Sequential(OrderedDict(
        conv1=nn.Conv2d(1, 8, 5, padding=padding), relu1=nn.ReLU(), conv2=nn.Conv2d(8, 8, 5, padding=padding),
        relu2=nn.ReLU(), pool=nn.MaxPool2d(2), flatten=nn.Flatten(), dense1=nn.Linear(8 * (side // 2) ** 2, 128),
        relu3=nn.ReLU(), dense2=nn.Linear(128, 10),
    ))  # fmt: skip
    graph = lesson_graph(lesson)
    weights = to_torch(graph, initial_weights(graph, lesson.seed))
    net.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return net


def _photos(torch: Any, photos: Array, device: str) -> Any:
    return torch.from_numpy(normalised(photos)).permute(0, 3, 1, 2).to(device)


def _accuracy(torch: Any, net: Any, device: str, photos: Array, labels: Array) -> float:
    with torch.no_grad():
        parts = [net(_photos(torch, photos[i : i + 1000], device)).argmax(-1) for i in range(0, len(photos), 1000)]
    return float((torch.cat(parts).cpu().numpy() == labels).mean())
