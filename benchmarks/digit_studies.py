"""Questions of the earlier works, answered by measuring on MNIST.

    LEAFCLINIC_DATA=... python -m benchmarks.digit_studies [--device cuda] [--parts classic shifted products]

"classic": what could part training from test accuracy? The course of the learning rate, the order of digits, and how
training accuracy is counted: over the last 200 steps, or by the trained network on all training digits.
"shifted": how much accuracy do the perceptron and the small CNN lose when the test digits move by some pixels? Both are
trained on digits in the middle, without random variation.
"products" (on a GPU): the perceptron trained by kernels of each level, by cuBLAS and by PyTorch: time of a step with
its update, digits on the GPU, and accuracy.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from benchmarks.record import Row, make_row, write_results
from core.data.digits import SIDE, read_digits
from core.device import Optimizer, PhotoBatch
from core.laboratory.mnist import RECIPES, REPORT_STEPS, digit_graph, learn, predict
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.plan import compile_plan
from core.training.step import start_step

Digits: TypeAlias = tuple[Array, Array]
VARIANTS: dict[str, dict[str, Any]] = {
    "classic": {}, "classic, inverse": {"schedule": "inverse"}, "classic, constant rate": {"schedule": "constant"},
    "classic, fixed order": {"shuffled": False},
}  # fmt: skip
SHIFTS = (0, 1, 2, 3, 4, 6)
"""Pixels to the right and down."""
EPOCHS = 5


def percentage(name: str, share: float) -> Row:
    return Row(name, 100 * share, {}, "%")


def classic_rows(train: Digits, test: Digits, device: str) -> Iterator[Row]:
    for name, changed in VARIANTS.items():
        reports: list[tuple[int, float, float]] = []
        recipe = replace(RECIPES["classic"], **changed)
        learned = learn(recipe, train, test, device, report=lambda *row, told=reports: told.append(row))
        for steps, _, accuracy in reports:
            yield percentage(f"{name}: steps {steps - REPORT_STEPS + 1} to {steps}", accuracy)
        yield Row(f"{name}: loss of the last step", reports[-1][1], {}, "")
        right = predict(learned.graph, learned.weights, train[0], device).argmax(-1) == train[1]
        yield percentage(f"{name}: all training digits", float(right.mean()))
        yield percentage(f"{name}: test digits", learned.accuracy)


def shifted_rows(train: Digits, test: Digits, device: str) -> Iterator[Row]:
    for name in ("mlp", "cnn"):
        recipe = replace(RECIPES[name], epochs=EPOCHS, turn=0.0, shift=0.0, zoom=0.0)
        learned = learn(recipe, train, test, device)
        for pixels in SHIFTS:
            right = predict(learned.graph, learned.weights, shift(test[0], pixels), device).argmax(-1) == test[1]
            yield percentage(f"{name}, shifted by {pixels} px", float(right.mean()))


def shift(photos: Array, pixels: int) -> Array:
    """Photos ``(N, H, W, 1)`` moved to the right and down; what enters is background."""
    moved = photos * 0
    height, width = photos.shape[1:3]
    moved[:, pixels:, pixels:] = photos[:, : height - pixels, : width - pixels]
    return moved


LEVELS = ("naive", "shared", "cublas", "tensor_core", "auto")
ROUNDS, STEPS = 7, 40


def product_rows(train: Digits, test: Digits, device: str) -> Iterator[Row]:
    theirs = torch_steps(*train)
    for level in LEVELS:
        learned = learn(RECIPES["classic"], train, test, device, algorithm=level)
        yield percentage(f"perceptron test accuracy, {level}", learned.accuracy)
        with our_step(level, device, *train) as step:
            times = time_interleaved({"": step, **theirs})
        yield make_row(f"perceptron step, {level}", times.pop(""), times, "ms")


@contextmanager
def our_step(level: str, device: str, photos: Array, labels: Array) -> Iterator[Callable[[], Any]]:
    recipe, graph = RECIPES["classic"], digit_graph(RECIPES["classic"])
    plan = compile_plan(with_loss(graph, 0.0, ()), device=device, batch=recipe.batch, training=True, algorithm=level,
                        optimizer=Optimizer("sgd", 0.0, False))  # fmt: skip
    with closing(plan):
        plan.load(initial_weights(graph, 0))
        plan.keep_photos(np.repeat(photos[: recipe.batch], 3, -1))
        augmentation = identity_augmentation(recipe.batch, SIDE, SIDE)
        batch = PhotoBatch(None, augmentation, labels[: recipe.batch], np.arange(recipe.batch))
        yield lambda: start_step(plan, batch, recipe.rate, following=batch)()


def torch_steps(photos: Array, labels: Array) -> dict[str, Callable[[], Any]]:
    """PyTorch's step with launches from Python, and as a captured graph."""
    from benchmarks.pytorch import torch

    recipe = RECIPES["classic"]
    x = torch.from_numpy(photos[: recipe.batch].reshape(-1, SIDE * SIDE) / np.float32(255)).cuda()
    y = torch.from_numpy(labels[: recipe.batch]).long().cuda()
    net = torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, 500), torch.nn.ReLU(), torch.nn.Linear(500, 10)).cuda()
    descent = torch.optim.SGD(net.parameters(), recipe.rate)

    def queue() -> torch.Tensor:
        descent.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        descent.step()
        return loss.detach()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        queue()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        loss = queue()
        graph.capture_end()

    def replay() -> None:
        graph.replay()
        loss.item()

    return {"PyTorch eager": lambda: queue().item(), "PyTorch graph": replay}


def time_interleaved(steps: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds of interleaved rounds, per step; the loss is read after each step."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(ROUNDS + 1):
        for name, run in steps.items():
            begin = time.perf_counter()
            for _ in range(STEPS):
                run()
            times[name] += [1e3 * (time.perf_counter() - begin) / STEPS] if number else []  # the first warms up
    return {name: median(values) for name, values in times.items()}


PARTS = {"classic": classic_rows, "shifted": shifted_rows, "products": product_rows}
"""A result file each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--machine", default="")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=["classic", "shifted"])
    options = parser.parse_args()
    folder = Path(os.environ["LEAFCLINIC_DATA"]) / "mnist"
    digits = read_digits(folder, "train"), read_digits(folder, "t10k")
    for part in options.parts:
        write_results(f"digits_{part}", list(PARTS[part](*digits, options.device)), options.machine)


if __name__ == "__main__":
    main()
