"""What the third work varied, on MNIST: batch size, learning rate, number of examples, optimizer; and recall by digit.

    LEAFCLINIC_DATA=... python -m benchmarks.digit_sweeps [--device cpu]

The network of `leafclinic lab conv`, one pass over the examples, test accuracy on 10,000 digits. Each implementation of
the CPU learns the same IMPLEMENTATION_EXAMPLES examples and is tested on as many test digits.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from benchmarks.digit_studies import percentage
from benchmarks.record import Row, write_results
from core.data.digits import read_digits
from core.device import Optimizer, PhotoBatch
from core.laboratory.digits import CPU_ALGORITHMS, Lesson, batches, lesson_graph, run_lesson
from core.laboratory.mnist import predict
from core.models.init import initial_weights
from core.models.options import Options
from core.models.sequential import cnn
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.plan import compile_plan

Digits: TypeAlias = tuple[Array, Array]
SGD, ADAM = Optimizer("sgd", 0.0, False), Optimizer("adam", beta1=0.95, beta2=0.99)
ALL = 60_000
LESSONS = (
    *((SGD, Lesson(batch, 0.05, 8192)) for batch in (16, 32, 64, 128)),
    *((SGD, Lesson(64, rate, 8192)) for rate in (0.005, 0.01, 0.1, 0.2)),
    *((SGD, Lesson(64, 0.05, examples)) for examples in (2048, 32768, ALL)),
    *((ADAM, Lesson(64, rate, 8192)) for rate in (0.0005, 0.001, 0.002)),
    (ADAM, Lesson(64, 0.001, ALL)),
)
IMPLEMENTATION_EXAMPLES = 2048


def train(lesson: Lesson, optimizer: Optimizer, digits: Digits, test: Array, device: str) -> Array:
    """The digits that the trained network takes the test photos for."""
    graph = lesson_graph(lesson)
    plan = compile_plan(graph, device=device, batch=lesson.batch, training=True, optimizer=optimizer)
    plan.load(initial_weights(graph, 0))
    plain = identity_augmentation(lesson.batch, 28, 28)
    for photos, labels in batches(lesson, *digits):
        plan.train_step(PhotoBatch(np.repeat(photos, 3, -1), plain, labels), lesson.learning_rate)
    weights = plan.weights()
    plan.close()
    network = cnn(Options(classes=10, image_size=28, channels=1, dropout=0.0, padding=lesson.padding))
    return np.asarray(predict(network, weights, test, device).argmax(-1))


def sweep(digits: Digits, test: Digits, device: str) -> Iterator[Row]:
    for optimizer, lesson in LESSONS:
        said = train(lesson, optimizer, digits, test[0], device)
        name = (f"{optimizer.name}, batch {lesson.batch}, learning rate {lesson.learning_rate:g}, {lesson.examples} "
                "examples")  # fmt: skip
        yield percentage(name, float((said == test[1]).mean()))
        if optimizer is SGD and lesson.examples == ALL:
            for digit in range(10):
                yield percentage(f"recall of {digit}", float((said == digit)[test[1] == digit].mean()))


def implementations(digits: Digits, test: Digits) -> Iterator[Row]:
    few = test[0][:IMPLEMENTATION_EXAMPLES], test[1][:IMPLEMENTATION_EXAMPLES]
    for way in CPU_ALGORITHMS:
        done = run_lesson(Lesson(64, 0.05, IMPLEMENTATION_EXAMPLES), way, digits, few)
        assert done.accuracy is not None
        yield percentage(f"{way}, {IMPLEMENTATION_EXAMPLES} examples", done.accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    folder = Path(os.environ["LEAFCLINIC_DATA"]) / "mnist"
    digits, test = read_digits(folder, "train"), read_digits(folder, "t10k")
    rows: list[Row] = []
    for part in (sweep(digits, test, options.device), implementations(digits, test)):
        rows += part
        write_results("digit_sweeps", rows)


if __name__ == "__main__":
    main()
