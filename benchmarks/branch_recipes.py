"""Compare recipes that train the branch of a place (`core.diagnosis.place_branch`), by its own four classes alone.

    python -m benchmarks.branch_recipes NETWORK ... --photos joined --device cuda --draws 0 1 2 3 4 5 --out FILE.json

NETWORK: of `benchmarks.leave_crop_out`, trained without orchard photos. For each draw of ten photos per class, four
branches are trained, each without a quarter of the photos, then their mean on all photos. Reported, of the orchard
photos that were not drawn: the share that is correct by one branch, by the mean of the weights, by the mean trained
further on labels, by the mean trained further to predict what the four branches predict together, as
`core.diagnosis.adaptation` does, and by the mean of the four branches' logits. On a GPU a recipe takes twenty seconds
for a network and a draw. Reads no test split.

`benchmarks/results/branch_recipes-nvidia-h200.json` is from before branches were clipped and learned from each other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.adaptation import PLACE, read_photos
from benchmarks.pack_photos import chosen_rows
from benchmarks.record import commit
from benchmarks.ship_model import name_of
from core.data.augment import draw_augmentation
from core.device import Optimizer, PhotoBatch
from core.diagnosis.adaptation import FOLDS
from core.diagnosis.head_fitting import make_folds
from core.diagnosis.metrics import softmax
from core.diagnosis.model_file import ModelFile, read_model, with_photo_side
from core.diagnosis.place_branch import (
    BATCH,
    FIRST,
    LAST,
    OPTIMIZER,
    SMOOTHING,
    Schedule,
    branch_nodes,
    draw_order,
    keep_classes,
    training_side,
)  # fmt: skip
from core.diagnosis.prediction import Predictor
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.optim.learning_rate import one_cycle
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights

DRAWN: Final = 10
FURTHER: Final = Schedule(30, 3, 3e-4)
"""Of the mean on labels."""


@dataclass(frozen=True)
class Recipe:
    """How branches are trained; the default is that of the program."""

    first: Schedule = FIRST
    last: Schedule = LAST
    batch: int = BATCH
    side: int = 0
    augmentation: str = "strong"
    smoothing: float = SMOOTHING
    optimizer: Optimizer = field(default_factory=lambda: OPTIMIZER)


RECIPES: Final[Mapping[str, Recipe]] = {
    "program": Recipe(),
    "no clipping": Recipe(optimizer=replace(OPTIMIZER, clip_norm=0.0)),
    "clipped at 0.1": Recipe(optimizer=replace(OPTIMIZER, clip_norm=0.1)),
    "clipped at 1": Recipe(optimizer=replace(OPTIMIZER, clip_norm=1.0)),
    "half the learning rate": Recipe(replace(FIRST, rate=5e-4), replace(LAST, rate=3e-4)),
    "200 steps": Recipe(replace(FIRST, steps=200)),
    "16 photos a step": Recipe(batch=16),
    "16 photos a step, half the steps": Recipe(Schedule(50, 10, 1e-3), Schedule(60, 5, 6e-4), batch=16),
    "80 steps": Recipe(replace(FIRST, steps=80)),
    "last training of 60 steps": Recipe(last=replace(LAST, steps=60)),
    "last training of 240 steps": Recipe(last=replace(LAST, steps=240)),
    "last training with half the learning rate": Recipe(last=replace(LAST, rate=3e-4)),
    "soft augmentation": Recipe(augmentation="soft"),
    "photos of the side in use": Recipe(side=352),
    "label smoothing 0.2": Recipe(smoothing=0.2),
}


@dataclass(frozen=True, eq=False)
class Study:
    """A network with a head for the place's classes, and the place's photos, uint8 ``(N, side, side, 3)``."""

    model: ModelFile
    photos: Array
    labels: Array
    device: str

    def logits(self, weights: Mapping[str, Array], photos: Array) -> Array:
        with closing(Predictor(replace(self.model, weights=weights), device=self.device, batch=32)) as predictor:
            return np.asarray(predictor.predict(photos)["logits"], np.float64)

    def train(self, weights: Mapping[str, Array], rows: Array, recipe: Recipe, schedule: Schedule, seed: int,
              teachers: Sequence[Mapping[str, Array]] = ()) -> dict[str, Array]:  # fmt: skip
        """As `core.diagnosis.place_branch.train_branch`, by a recipe, with targets of teachers where there are any."""
        graph, photos, labels, size = self.model.graph, self.photos[rows], self.labels[rows], recipe.batch
        side, source = recipe.side or training_side(graph.photo_shape[0]), photos.shape[1]
        smaller, trainable = with_photo_side(graph, side), {node.name for node in branch_nodes(graph)}
        frozen = [name for name in graph.parameters() if name.rpartition(".")[0] not in trainable]
        order = draw_order(labels, schedule.steps * size, seed).reshape(schedule.steps, size)
        with ExitStack() as opened:
            plan = opened.enter_context(closing(compile_plan(
                with_loss(smaller, recipe.smoothing, (), taught=bool(teachers)), device=self.device, batch=size,
                training=True, frozen=frozen, seed=seed, optimizer=recipe.optimizer)))  # fmt: skip
            taught = [opened.enter_context(closing(compile_plan(smaller, device=self.device, batch=size)))
                      for _ in teachers]  # fmt: skip
            for loaded, values in zip((plan, *taught), (weights, *teachers), strict=True):
                loaded.load(values)
            for step, chosen in enumerate(order):
                shown = draw_augmentation(recipe.augmentation, seed, step, chosen, source, side, np.arange(size))
                batch = PhotoBatch(photos[chosen], shown, labels[chosen].astype(np.int32))
                if teachers:
                    said = np.mean([teacher.predict(batch)["logits"] for teacher in taught], axis=0)
                    batch = replace(batch, targets=softmax(said).astype(np.float32))
                plan.train_step(batch, schedule.rate * one_cycle(step, schedule.warm_up, schedule.steps))
            return plan.weights()

    def compare(self, recipe: Recipe, draw: int) -> dict[str, float]:
        """Shares of photos that were not drawn that are correct."""
        rng, seeds = np.random.default_rng(draw), iter(range(draw, draw + FOLDS + 2))
        chosen = np.concatenate([rng.permutation(np.flatnonzero(self.labels == c))[:DRAWN] for c in range(len(PLACE))])
        others = np.setdiff1d(np.arange(len(self.labels)), chosen)
        folds = make_folds(self.labels[chosen], np.arange(len(chosen)), FOLDS)
        branches = [self.train(self.model.weights, chosen[folds != fold], recipe, recipe.first, next(seeds))
                    for fold in range(FOLDS)]  # fmt: skip
        mean = {name: np.mean([branch[name] for branch in branches], axis=0) for name in branches[0]}
        further = self.train(mean, chosen, recipe, FURTHER, next(seeds))
        distilled = self.train(mean, chosen, recipe, recipe.last, next(seeds), branches)
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
