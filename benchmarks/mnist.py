"""Digits: what each preset reaches on MNIST's 10,000 test digits, how long it takes, and photographed digits.

    LEAFCLINIC_DATA=... python -m benchmarks.mnist [--device cuda] [--recipes cnn,mlp,classic,classic-sigmoid]

The recipes `cnn` and `mlp` take under three minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from benchmarks.record import Row, make_row, print_table, write_results
from core.data.digits import read_digits
from core.laboratory.digit_photos import read_digit
from core.laboratory.mnist import RECIPES, learn, predict
from tests.core.laboratory.digits_on_paper import draw_digits

WANTED = {"cnn": 99.0, "mlp": 98.0}
"""Per cent that the presets must reach."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--machine", default="")
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--epochs", type=int, default=0, help="instead of the presets'")
    options = parser.parse_args()
    folder = Path(os.environ["LEAFCLINIC_DATA"]) / "mnist"
    train, test = read_digits(folder, "train"), read_digits(folder, "t10k")
    rows = []
    for name in options.recipes.split(","):
        recipe = replace(RECIPES[name], epochs=options.epochs or RECIPES[name].epochs)
        learned = learn(recipe, train, test, options.device)
        reached = learned.accuracy * 100
        wanted = {"wanted": WANTED[name]} if name in WANTED else {}
        rows.append(make_row(f"mnist {name} accuracy", reached, wanted, "%"))
        rows.append(Row(f"mnist {name} training", learned.seconds, {}, "s"))
        if name == "cnn":
            right = sum(
                int(predict(learned.graph, learned.weights, read_digit(photo)[None], options.device).argmax()) == digit
                for photo, digit in draw_digits()
            )
            rows.append(make_row("photographed digits right of 20", right, {"wanted": 18}, "photos"))
        print_table(rows)
    write_results("mnist", rows, options.machine, epochs=options.epochs or "as the presets say")


if __name__ == "__main__":
    main()
