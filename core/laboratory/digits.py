"""A small CNN on digits, trained and timed with each convolution algorithm; the plan tests what it learned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from core.data.dataset import ReportStage, ignore
from core.device import Optimizer, PhotoBatch
from core.graph import Graph
from core.laboratory.mnist import accuracy
from core.laboratory.unfused_network import UnfusedNetwork
from core.models.init import initial_weights
from core.models.options import DIGIT_MEAN, DIGIT_STD, Options
from core.models.sequential import cnn
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.plan import compile_plan

Prepare: TypeAlias = Callable[[Array, Array], Callable[[], float]]
"""Puts photos and labels on the device; returns the training step, which returns the loss."""

CPU_ALGORITHMS: Final = ("naive", "vectorised", "vectorised_parallel", "im2col", "im2col_parallel")
GPU_ALGORITHMS: Final = ("naive", "shared", "im2col", "tensor_core")


@dataclass(frozen=True, slots=True)
class Lesson:
    """Settings of the training: one epoch of the first `examples` digits, plain gradient descent."""

    batch: int = 32
    learning_rate: float = 0.05
    examples: int = 2048
    padding: str = "same"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of the median iteration, the last loss, and accuracy on the test photos (None: not measured)."""

    algorithm: str
    seconds: float
    loss: float
    accuracy: float | None


def lesson_network(lesson: Lesson) -> Graph:
    """Two 5x5 convolutions of 8 filters, max pooling, dense 128, dense 10."""
    return cnn(Options(classes=10, image_size=28, channels=1, dropout=0.0, padding=lesson.padding))


def lesson_graph(lesson: Lesson) -> Graph:
    return with_loss(lesson_network(lesson), 0.0, ())


def normalised(photos: Array) -> Array:
    """Convert uint8 digits to float32 with mean 0 and standard deviation 1."""
    return ((photos / np.float32(255) - np.float32(DIGIT_MEAN[0])) / np.float32(DIGIT_STD[0])).astype(np.float32)


def run_lesson(
    lesson: Lesson, algorithm: str, train: tuple[Array, Array], test: tuple[Array, Array] | None,
    report: ReportStage = ignore,
) -> Outcome:  # fmt: skip
    """Run the lesson on the CPU with one algorithm, kernel by kernel."""
    graph = lesson_graph(lesson)
    network = UnfusedNetwork(graph, initial_weights(graph, 0), lesson.batch, algorithm)

    def step() -> float:
        network.step()
        for name, gradient in network.gradients.items():
            network.parameters[name] -= np.float32(lesson.learning_rate) * gradient
        return network.loss()

    def prepare(photos: Array, labels: Array) -> Callable[[], float]:
        network.photos[...], network.labels[...] = normalised(photos), labels
        return step

    seconds, loss = time_training(lesson, train, prepare, report)
    return Outcome(algorithm, seconds, loss, test and accuracy(lesson_network(lesson), network.parameters, test, "cpu"))


def run_plan(
    lesson: Lesson, device: str, train: tuple[Array, Array], test: tuple[Array, Array] | None,
    report: ReportStage = ignore, algorithm: str = "auto",
) -> Outcome:  # fmt: skip
    """Run the lesson with the engine's plan: fused kernels, on the GPU one captured graph."""
    network = lesson_network(lesson)
    plan = compile_plan(
        lesson_graph(lesson), device=device, batch=lesson.batch, training=True, algorithm=algorithm,
        optimizer=Optimizer("sgd", 0.0, False),
    )
    plan.load(initial_weights(network, 0))
    augmentation = identity_augmentation(lesson.batch, 28, 28)

    def prepare(photos: Array, labels: Array) -> Callable[[], float]:
        batch = PhotoBatch(np.repeat(photos, 3, -1), augmentation, labels)
        return lambda: plan.train_step(batch, lesson.learning_rate).loss

    seconds, loss = time_training(lesson, train, prepare, report)
    weights = plan.weights()
    plan.close()
    name = "plan" if algorithm == "auto" else algorithm
    return Outcome(name, seconds, loss, test and accuracy(network, weights, test, device))


def time_training(
    lesson: Lesson, train: tuple[Array, Array], prepare: Prepare, report: ReportStage
) -> tuple[float, float]:
    """Train on every batch; returns the median seconds of an iteration, without the first, and the last loss."""
    seconds, loss = [], 0.0
    for photos, labels in batches(lesson, *train):
        step = prepare(photos, labels)
        begin = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - begin)
        report("training", len(seconds) * lesson.batch, min(lesson.examples, len(train[0])))
    return float(np.median(seconds[1:] or seconds)), loss


def batches(lesson: Lesson, photos: Array, labels: Array) -> Iterator[tuple[Array, Array]]:
    """Whole batches of the first examples, in a random order that is always the same."""
    count = min(lesson.examples, len(photos)) // lesson.batch * lesson.batch
    order = np.random.default_rng(0).permutation(count)
    for first in range(0, count, lesson.batch):
        rows = order[first : first + lesson.batch]
        yield photos[rows], labels[rows]
