"""The convolution lesson: one small CNN on digits, trained, timed and tested with each convolution algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, final

import numpy as np

from core.device import Optimizer, PhotoBatch
from core.graph import Graph
from core.laboratory.mnist import predict
from core.laboratory.unfused_network import UnfusedNetwork
from core.models.init import initial_weights
from core.models.options import DIGIT_MEAN, DIGIT_STD, Options
from core.models.sequential import cnn
from core.ops.builder import with_loss
from core.ops.contract import Array, Mode
from core.ops.photo import identity_augmentation
from core.ops.registry import Registry
from core.plan import compile_plan

Report: TypeAlias = Callable[[str, int, int], None]
"""Told what is done with the digits ("training", "testing"), how many of them are, and of how many."""

CPU_ALGORITHMS: Final = ("naive", "vectorised", "vectorised_parallel", "im2col", "im2col_parallel")
GPU_ALGORITHMS: Final = ("naive", "shared", "im2col", "tensor_core")

TITLES: Final[Mapping[str, str]] = MappingProxyType({
    "naive": "plain loops",
    "vectorised": "array operations",
    "vectorised_parallel": "array operations, batch in parallel",
    "im2col": "unfolded, matrix product",
    "im2col_parallel": "unfolded, batch in parallel",
    "plan": "LeafClinic plan",
    "tensor_core": "tensor cores",
    "shared": "tiles in shared memory",
})  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Lesson:
    """What is trained: examples of `photos` uint8 (N, 28, 28, 1), one pass, plain gradient descent."""

    batch: int = 32
    learning_rate: float = 0.05
    examples: int = 2048
    padding: str = "same"
    seed: int = 0


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of the median iteration, the last loss, and accuracy on the test photos (None: not measured)."""

    algorithm: str
    seconds: float
    loss: float
    accuracy: float | None


def lesson_graph(lesson: Lesson) -> Graph:
    """Two 5x5 convolutions of 8 filters, max pooling, dense 128, dense 10, and the loss."""
    options = Options(classes=10, image_size=28, channels=1, dropout=0.0, padding=lesson.padding)
    return with_loss(cnn(options), 0.0, ())


def normalised(photos: Array) -> Array:
    """uint8 digits to float32 with mean 0 and deviation 1."""
    return ((photos / np.float32(255) - np.float32(DIGIT_MEAN[0])) / np.float32(DIGIT_STD[0])).astype(np.float32)


def keep_quiet(stage: str, done: int, total: int) -> None:
    """The report of those who are not asked for one."""


def run_lesson(
    lesson: Lesson, table: Registry, algorithm: str, train: tuple[Array, Array], test: tuple[Array, Array] | None,
    report: Report = keep_quiet,
) -> Outcome:  # fmt: skip
    """Train once over the examples on the CPU with one algorithm and time every iteration but the first."""
    graph = lesson_graph(lesson)
    network = UnfusedNetwork(graph, initial_weights(graph, lesson.seed), lesson.batch, table, algorithm)
    seconds = []
    for photos, labels in batches(lesson, *train):
        _fill(network, photos, labels)
        begin = time.perf_counter()
        network.step()
        _descend(network, lesson.learning_rate)
        loss = network.loss()
        seconds.append(time.perf_counter() - begin)
        report("training", len(seconds) * lesson.batch, min(lesson.examples, len(train[0])))
    accuracy = None if test is None else _accuracy(network, *test, report)
    return Outcome(algorithm, float(np.median(seconds[1:] or seconds)), loss, accuracy)


def run_plan(
    lesson: Lesson, device: str, train: tuple[Array, Array], test: tuple[Array, Array] | None,
    report: Report = keep_quiet, algorithm: str = "auto",
) -> Outcome:  # fmt: skip
    """The same lesson with the engine's plan: fused kernels, on the GPU one captured graph."""
    network = cnn(Options(classes=10, image_size=28, channels=1, dropout=0.0, padding=lesson.padding))
    optimizer = Optimizer("sgd", 0.0, False)
    plan = compile_plan(
        with_loss(network, 0.0, ()), device=device, batch=lesson.batch, training=True, optimizer=optimizer,
        algorithm=algorithm,
    )
    plan.load(initial_weights(network, lesson.seed))
    rows, seconds, loss = identity_augmentation(lesson.batch, (28, 28), (28, 28)), [], 0.0
    for photos, labels in batches(lesson, *train):
        colour = np.repeat(photos, 3, -1)
        begin = time.perf_counter()
        loss = plan.train_step(PhotoBatch(colour, rows, labels), lesson.learning_rate).loss
        seconds.append(time.perf_counter() - begin)
        report("training", len(seconds) * lesson.batch, min(lesson.examples, len(train[0])))
    weights, accuracy = plan.weights(), None
    plan.close()
    if test is not None:
        accuracy = float((predict(network, weights, test[0], device).argmax(-1) == test[1]).mean())
    name = "plan" if algorithm == "auto" else algorithm
    return Outcome(name, float(np.median(seconds[1:] or seconds)), loss, accuracy)


def batches(lesson: Lesson, photos: Array, labels: Array) -> Iterator[tuple[Array, Array]]:
    """Whole batches of the first examples in an order that follows from the seed."""
    count = min(lesson.examples, len(photos)) // lesson.batch * lesson.batch
    order = np.random.default_rng(lesson.seed).permutation(count)
    for first in range(0, count, lesson.batch):
        rows = order[first : first + lesson.batch]
        yield photos[rows], labels[rows]


def _fill(network: UnfusedNetwork, photos: Array, labels: Array) -> None:
    network.photos[...], network.labels[...] = normalised(photos), labels


def _descend(network: UnfusedNetwork, rate: float) -> None:
    """``weight -= rate gradient`` for every parameter."""
    for name, gradient in network.gradients.items():
        network.parameters[name] -= np.float32(rate) * gradient


def _accuracy(network: UnfusedNetwork, photos: Array, labels: Array, report: Report) -> float:
    """Return the accuracy of the network (no dropout in this lesson) over whole batches."""
    right = seen = 0
    network.mode = Mode()
    for first in range(0, len(photos) - network.batch + 1, network.batch):
        rows = slice(first, first + network.batch)
        _fill(network, photos[rows], labels[rows])
        for launch in network.forward:
            launch.run()
        logits = network.values[network.graph.output]
        right += int((logits.argmax(-1) == labels[rows]).sum())
        seen += network.batch
        report("testing", seen, len(photos))
    return right / max(seen, 1)
