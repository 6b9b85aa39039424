"""Accuracy of 1, 2, 4 and 6 photos of one class together, by pooled probabilities and by vote.

    python -m benchmarks.plants leaves /tmp/joined --split val --outputs val.npz --out benchmarks/results/plants.json
    python -m benchmarks.plants leaves /tmp/joined --split test --outputs test.npz --out benchmarks/results/plants.json

The packs do not record plants, so photos of one class are drawn at random. `--outputs` keeps the logits, which take
most of the processor time, 85 s for `val`. With `--split test` and no such file the test splits are read: log it in
benchmarks/results/test_readings.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.adaptation import read_outputs
from benchmarks.record import commit
from benchmarks.ship_model import name_of
from core.diagnosis.calibration import BINS, state_probabilities
from core.diagnosis.model_file import read_model
from core.diagnosis.plant import pool_probabilities
from core.ops.contract import Array

SIZES = (1, 2, 4, 6)
ROUNDS = 10
"""Groups that each photo is drawn into, where they have several photos."""
Row = dict[str, str]
PARTS: dict[str, dict[str, Callable[[Row], bool]]] = {
    "val": {"val all": lambda row: True},
    "test": {
        "test, apple in the field": lambda row: row["pack"] == "field" and row["crop"] == "apple",
        "test, field leaves": lambda row: row["setting"] == "field" and row["crop"] != "background",
    },
}
"""Splits, their parts by name, and which photos are in a part."""
SPLITS = {"val": ("val",), "test": ("test", "field_test")}
NOTE = ("Photos of one class drawn at random, each photo in up to 10 groups; the packs do not record plants, and "
        "photos of one plant are more alike.")  # fmt: skip


def draw_groups(labels: Array, size: int, rng: np.random.Generator) -> Array:
    """Rows of photos of one class, ``(groups, size)``; classes with too few photos have none."""
    groups = []
    for index in np.unique(labels):
        rows = np.flatnonzero(labels == index)
        for _ in range(ROUNDS if size > 1 else 1):
            mixed = rng.permutation(rows)
            groups += [mixed[at : at + size] for at in range(0, len(rows) - size + 1, size)]
    return np.array(groups)


def equal_count_error(probabilities: Array, labels: Array) -> float:
    """The expected calibration error with `BINS` bins of equal numbers of photos."""
    stated = probabilities.max(axis=1)
    excess = (stated - (probabilities.argmax(axis=1) == labels))[np.argsort(stated, kind="stable")]
    return float(sum(abs(part.sum()) for part in np.array_split(excess, BINS)) / len(excess))


def measure(probabilities: Array, labels: Array, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """Figures by the number of photos."""
    found = {}
    for size in SIZES:
        groups = draw_groups(labels, size, rng)
        truth = labels[groups[:, 0]]
        pooled = np.stack([pool_probabilities(probabilities[rows]) for rows in groups])
        named = probabilities.argmax(axis=1)[groups]
        votes = (named[:, :, None] == named[:, None, :]).sum(axis=2)  # for the class that each photo names
        leading = votes == votes.max(axis=1, keepdims=True)  # each of the classes of a tie as often as its votes
        voted = (leading & (named == truth[:, None])).sum(axis=1) / leading.sum(axis=1)
        found[str(size)] = {
            "groups": len(groups), "correct": round(float((pooled.argmax(axis=1) == truth).mean()), 4),
            "vote": round(float(voted.mean()), 4),
            "calibration_error": round(equal_count_error(pooled, truth), 3),
        }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--split", choices=tuple(SPLITS), default="val")
    parser.add_argument("--outputs", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="results file, to which the parts of this split are added")
    options = parser.parse_args()
    model = read_model(options.model)
    rows, seen = read_outputs(model, options.photos, options.outputs, SPLITS[options.split])
    labels = np.array([model.classes.index(name_of(row)) for row in rows])
    probabilities, rng = state_probabilities(model, seen.logits), np.random.default_rng(0)
    found = {}
    for name, belongs in PARTS[options.split].items():
        kept = np.array([belongs(row) for row in rows])
        found[name] = measure(probabilities[kept], labels[kept], rng)
    print(json.dumps(found, indent=1))
    if options.out:
        results = json.loads(options.out.read_text("utf-8")) if options.out.is_file() else {"parts": {}}
        results |= {"commit": commit(), "note": NOTE, "parts": {**results["parts"], **found}}
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
