"""Two questions of the earlier works, answered by measuring on MNIST.

    LEAFCLINIC_DATA=... python -m benchmarks.digit_studies [--device cuda] [--parts classic shifted]

"classic": what could part training from test accuracy? The course of the learning rate, the order of digits, and how
training accuracy is counted: over the last 200 steps, or by the trained network on all training digits.
"shifted": how much accuracy do the perceptron and the small CNN lose when the test digits move by some pixels? Both are
trained on digits in the middle, without random variation.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.record import Row, write_results
from core.data.idx import read_digits
from core.laboratory.mnist import RECIPES, REPORT_STEPS, learn, predict
from core.ops.contract import Array

Digits: TypeAlias = tuple[Array, Array]
VARIANTS: dict[str, dict[str, Any]] = {
    "classic": {}, "classic, inverse": {"schedule": "inverse"}, "classic, constant rate": {"schedule": "constant"},
    "classic, fixed order": {"shuffled": False},
}  # fmt: skip
SHIFTS = (0, 1, 2, 3, 4, 6)
"""Pixels to the right and down."""
EPOCHS = 5


def percentage(name: str, share: float) -> Row:
    return Row(name, 100 * share, {}, "%", float("nan"))


def classic_rows(train: Digits, test: Digits, device: str) -> Iterator[Row]:
    for name, changed in VARIANTS.items():
        reports: list[tuple[int, float, float]] = []
        recipe = replace(RECIPES["classic"], **changed)
        learned = learn(recipe, train, test, device, report=lambda *row, told=reports: told.append(row))
        for steps, _, accuracy in reports:
            yield percentage(f"{name}: steps {steps - REPORT_STEPS + 1} to {steps}", accuracy)
        yield Row(f"{name}: loss of the last step", reports[-1][1], {}, "", float("nan"))
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


PARTS = {"classic": classic_rows, "shifted": shifted_rows}
"""A result file each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--machine", default="")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    options = parser.parse_args()
    folder = Path(os.environ["LEAFCLINIC_DATA"]) / "mnist"
    digits = read_digits(folder, "train"), read_digits(folder, "t10k")
    for part in options.parts:
        write_results(f"digits_{part}", list(PARTS[part](*digits, options.device)), options.machine)


if __name__ == "__main__":
    main()
