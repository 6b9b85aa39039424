"""Compare recipes that train the branch of a place (`core.diagnosis.place_branch`), by its own four classes alone.

    python -m benchmarks.branch_recipes NETWORK ... --photos joined --device cuda --draws 0 1 2 3 4 5 --out FILE.json

NETWORK: of `benchmarks.leave_crop_out`, trained without orchard photos. For each draw of ten photos per class, four
branches are trained, each without a quarter of the photos, then their mean on all photos. Reported, of the orchard
photos that were not drawn: the share that is correct by one branch, by the mean of the weights, by the mean trained
further on labels, by the mean trained further to predict what the four branches predict together, as
`core.diagnosis.adaptation` does, and by the mean of the four branches' logits. On a GPU a recipe takes twenty seconds
for a network and a draw. Reads no test split.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.adaptation import PLACE, read_photos
from benchmarks.pack_photos import chosen_rows
from benchmarks.record import commit
from benchmarks.ship_model import name_of
from core.diagnosis.adaptation import FOLDS, Weights
from core.diagnosis.head_fitting import make_folds
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.place_branch import FIRST, LAST, OPTIMIZER, Schedule, keep_classes, train_branch
from core.diagnosis.prediction import Predictor
from core.ops.contract import Array
from core.program import fold_batch_norm, fold_weights

DRAWN: Final = 10
Recipe = tuple[Schedule, Schedule]
"""Of the branches, and of the one that learns from them."""


def both(**changes: Any) -> Recipe:
    return replace(FIRST, **changes), replace(LAST, **changes)


def last(**changes: Any) -> Recipe:
    return FIRST, replace(LAST, **changes)


RECIPES: Final[Mapping[str, Recipe]] = {
    "program": (FIRST, LAST),
    "60 steps a branch": (replace(FIRST, steps=60, warm_up=12), LAST),
    "100 steps a branch": (replace(FIRST, steps=100, warm_up=20), LAST),
    "last training of 60 steps": last(steps=60),
    "last training of 60 steps at 2e-4": last(steps=60, rate=2e-4),
    "last training at 6e-4": last(rate=6e-4),
    "30 batches": last(views=30),
    "120 batches, none twice": last(views=None),
    "6 photos a step": both(batch=6),
    "16 photos a step": both(batch=16),
    "no clipping": both(optimizer=replace(OPTIMIZER, clip_norm=0.0)),
    "clipped at 1": both(optimizer=replace(OPTIMIZER, clip_norm=1.0)),
    "half the learning rate": (replace(FIRST, rate=5e-4), LAST),
    "soft augmentation": both(augmentation="soft"),
    "label smoothing 0.2": both(smoothing=0.2),
}


@dataclass(frozen=True, eq=False)
class Study:
    """A network with a head for the place's classes, and the place's photos, uint8 ``(N, side, side, 3)``."""

    model: ModelFile
    photos: Array
    labels: Array
    device: str
    branches: dict[tuple[Schedule, int], list[Weights]] = field(default_factory=dict)
    """Trained already, by schedule and draw: recipes with the same first training share them."""

    def logits(self, weights: Weights, photos: Array) -> Array:
        with closing(Predictor(replace(self.model, weights=weights), device=self.device, batch=32)) as predictor:
            return np.asarray(predictor.predict(photos)["logits"], np.float64)

    def train(self, weights: Weights, rows: Array, schedule: Schedule, seed: int, *teachers: Weights) -> Weights:
        return train_branch(self.model.graph, weights, self.photos[rows], self.labels[rows], schedule, seed,
                            self.device, 0, teachers=teachers)  # fmt: skip

    def compare(self, recipe: Recipe, draw: int) -> dict[str, float]:
        """Shares of photos that were not drawn that are correct."""
        rng = np.random.default_rng(draw)
        chosen = np.concatenate([rng.permutation(np.flatnonzero(self.labels == c))[:DRAWN] for c in range(len(PLACE))])
        others = np.setdiff1d(np.arange(len(self.labels)), chosen)
        folds = make_folds(self.labels[chosen], np.arange(len(chosen)), FOLDS)
        key = recipe[0], draw
        if key not in self.branches:
            self.branches[key] = [self.train(self.model.weights, chosen[folds != fold], recipe[0], draw + fold)
                                  for fold in range(FOLDS)]  # fmt: skip
        branches = self.branches[key]
        mean = {name: np.mean([branch[name] for branch in branches], axis=0) for name in branches[0]}
        further = self.train(mean, chosen, replace(recipe[0], steps=30, warm_up=3, rate=3e-4), draw + FOLDS)
        distilled = self.train(mean, chosen, recipe[1], draw + FOLDS, *branches)
        said = [self.logits(branch, self.photos[others]) for branch in branches]
        found = {"mean of the weights": self.logits(mean, self.photos[others]),
                 "trained further on labels": self.logits(further, self.photos[others]),
                 "distilled": self.logits(distilled, self.photos[others]),
                 "mean of the logits": np.mean(said, axis=0)}  # fmt: skip
        correct = {name: float((z.argmax(axis=1) == self.labels[others]).mean()) for name, z in found.items()}
        single = [float((z.argmax(axis=1) == self.labels[others]).mean()) for z in said]
        return {"one branch": float(np.mean(single)), "worst branch": min(single), **correct}


def read_study(network: Path, photos: Path, device: str) -> Study:
    model = read_model(network)
    rows = [row for row in chosen_rows(photos / "manifest.csv", ["train", "val"])
            if (row["setting"], row["pack"]) == ("field", "field") and name_of(row) in PLACE]  # fmt: skip
    classes = np.array([model.classes.index(name) for name in PLACE])
    graph, weights = keep_classes(fold_batch_norm(model.graph), fold_weights(model.graph, model.weights), classes)
    model = replace(model, graph=graph, weights=weights, classes=PLACE, class_temperatures=())
    labels = np.array([PLACE.index(name_of(row)) for row in rows])
    return Study(model, read_photos(model, [photos / row["path"] for row in rows]), labels, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", type=Path, nargs="+")
    parser.add_argument("--photos", type=Path, required=True, help="a folder of benchmarks.join_photos")
    parser.add_argument("--recipes", nargs="+", choices=tuple(RECIPES), default=list(RECIPES))
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.recipes}
    for network in options.networks:
        study = read_study(network, options.photos, options.device)
        for name in options.recipes:
            for draw in options.draws:
                runs[name].append({"network": network.stem, "draw": draw, **study.compare(RECIPES[name], draw)})
                print(name, json.dumps(runs[name][-1]), flush=True)
                options.out.write_text(json.dumps({"commit": commit(), "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
