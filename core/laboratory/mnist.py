"""Digits from MNIST with the small CNN and the perceptron, by presets, on any device's plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from core.config import RunConfig
from core.data.digits import SIDE
from core.device import Optimizer, PhotoBatch
from core.graph import Graph
from core.models.init import initial_weights
from core.models.options import Options
from core.models.sequential import cnn, mlp
from core.ops.builder import with_loss
from core.ops.contract import Array, Arrays
from core.ops.photo import AFFINE, identity_augmentation
from core.optim.learning_rate import learning_rate
from core.plan import compile_plan


@dataclass(frozen=True, slots=True)
class MnistRecipe:
    """Settings of a training. turn (degrees), shift (pixels), zoom: bounds of the random variation of a digit.

    steps: 0 for whole epochs; activation: of the perceptron.
    """

    model: str
    batch: int = 128
    epochs: int = 15
    steps: int = 0
    rate: float = 0.05
    momentum: float = 0.9
    schedule: str = "one_cycle"
    decay: float = 0.0
    weight_decay: float = 5e-4
    dropout: float = 0.0
    activation: str = "relu"
    turn: float = 0.0
    shift: float = 0.0
    zoom: float = 0.0


CLASSIC: Final = MnistRecipe("mlp", batch=256, steps=1600, rate=0.02, momentum=0.0, schedule="compounding", decay=5e-5,
                             weight_decay=0.0)  # fmt: skip
RECIPES: Final[Mapping[str, MnistRecipe]] = {
    "cnn": MnistRecipe("cnn", dropout=0.4, turn=10, shift=1.5, zoom=0.1, epochs=20),
    "mlp": MnistRecipe("mlp", turn=8, shift=1.0, zoom=0.08, epochs=25),
    "classic": CLASSIC,
    "classic-sigmoid": replace(CLASSIC, activation="sigmoid"),
}  # fmt: skip
"""The classic recipes have the settings of the original course."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The trained network without its loss, and its accuracy on the test digits."""

    graph: Graph
    weights: Arrays
    accuracy: float
    steps: int
    seconds: float


PREDICTED: Final = 200
"""Digits of a batch of predictions."""
REPORT_STEPS: Final = 200
Report: TypeAlias = Callable[[int, float, float], None]
"""Called every REPORT_STEPS steps: steps done, loss of the last step, accuracy on the digits since the last call."""


def digit_graph(recipe: MnistRecipe) -> Graph:
    """The network, with one grey channel: 784 values per digit."""
    options = Options(classes=10, image_size=SIDE, channels=1, dropout=recipe.dropout, activation=recipe.activation)
    return {"cnn": cnn, "mlp": mlp}[recipe.model](options)


def learn(
    recipe: MnistRecipe, train: tuple[Array, Array], test: tuple[Array, Array], device: str,
    start: Arrays | None = None, report: Report = lambda steps, loss, accuracy: None, algorithm: str = "auto",
) -> Learned:  # fmt: skip
    """Train by the recipe, from weights `start` if given; test once at the end. Photos: uint8 ``(N, 28, 28, 1)``."""
    graph = digit_graph(recipe)
    optimizer = Optimizer("sgd", recipe.momentum, recipe.momentum > 0, recipe.weight_decay)
    plan = compile_plan(
        with_loss(graph, 0.0, ()), device=device, batch=recipe.batch, training=True, optimizer=optimizer,
        algorithm=algorithm,
    )  # fmt: skip
    plan.load(start or initial_weights(graph, 0))
    per_epoch = len(train[0]) // recipe.batch
    total = recipe.steps or recipe.epochs * per_epoch
    config = RunConfig(learning_rate=recipe.rate, schedule=recipe.schedule, decay=recipe.decay, warmup=(
        0.2 if recipe.schedule == "one_cycle" else 0.0))  # fmt: skip
    begin, correct = time.perf_counter(), 0
    for step, batch in enumerate(_batches(recipe, *train, total)):
        done = plan.train_step(batch, learning_rate(config, step, total, per_epoch))
        correct += done.correct
        if (step + 1) % REPORT_STEPS == 0:
            report(step + 1, done.loss, correct / (REPORT_STEPS * recipe.batch))
            correct = 0
    weights, seconds = plan.weights(), time.perf_counter() - begin
    plan.close()
    return Learned(graph, weights, accuracy(graph, weights, test, device), total, seconds)


def accuracy(graph: Graph, weights: Arrays, test: tuple[Array, Array], device: str) -> float:
    return float((predict(graph, weights, test[0], device).argmax(-1) == test[1]).mean())


def predict(graph: Graph, weights: Arrays, photos: Array, device: str) -> Array:
    """Logits ``(N, 10)`` of digits uint8 ``(N, 28, 28, 1)``."""
    plan = compile_plan(graph, device=device, batch=min(PREDICTED, len(photos)))
    plan.load(weights)
    parts = []
    for first in range(0, len(photos), plan.batch):
        part = np.repeat(photos[first : first + plan.batch], 3, -1)
        parts.append(plan.predict(PhotoBatch.plain(part, SIDE))["logits"].copy())
    plan.close()
    return np.concatenate(parts)


def _batches(recipe: MnistRecipe, photos: Array, labels: Array, total: int) -> Iterator[PhotoBatch]:
    per_epoch = len(photos) // recipe.batch
    for step in range(total):
        if step % per_epoch == 0:
            order = np.random.default_rng([0, step]).permutation(len(photos))
        chosen = order[step % per_epoch * recipe.batch :][: recipe.batch]
        augmentation = vary(recipe, len(chosen), np.random.default_rng([0, step, 1]))
        yield PhotoBatch(np.repeat(photos[chosen], 3, -1), augmentation, labels[chosen])


def vary(recipe: MnistRecipe, count: int, rng: np.random.Generator) -> Array:
    """Augmentation (`core.ops.photo`) that rotates, scales and shifts each digit about its middle."""
    augmentation = identity_augmentation(count, SIDE, SIDE)
    if not (recipe.turn or recipe.shift or recipe.zoom):
        return augmentation
    middle = (SIDE - 1) / 2
    angle = np.deg2rad(rng.uniform(-recipe.turn, recipe.turn, count))
    scale = np.exp(rng.uniform(-recipe.zoom, recipe.zoom, count))
    dx, dy = rng.uniform(-recipe.shift, recipe.shift, (2, count))
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    augmentation[:, AFFINE] = np.stack(
        [cos, -sin, middle - middle * (cos - sin) + dx, sin, cos, middle - middle * (sin + cos) + dy], 1
    )
    return augmentation
