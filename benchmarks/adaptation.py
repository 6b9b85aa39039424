"""Adapt a model to a place from ten photos per class: accuracy there and elsewhere, before and after, three seeds.

    python -m benchmarks.adaptation leaves /tmp/joined --splits val --outputs /tmp/leaves.npz
    python -m benchmarks.adaptation WITHOUT /tmp/joined --splits train val --outputs /tmp/without.npz

The place is the orchard: field photos of four classes of apple that the model has not been trained on; WITHOUT is a
network of `benchmarks.leave_crop_out`, seeds 1 to 3. Photos that are not drawn are held out. Of the methods after
which at least 96.4 % of the other validation photos are correct (model before, 96.9 % without adaptation), that with
the most correct held-out photos, mean of the draws, is chosen. Other validation photos, a third of them for each draw,
show what is forgotten, photos of unknown crops what is still rejected.
`--outputs` keeps the outputs of the network, which take most of the time; a draw of `leaves` then takes about two
minutes on two cores. Reads no test split.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pack_photos import chosen_rows
from benchmarks.ship_model import name_of
from core.data.photo_reader import read_photo
from core.diagnosis.adaptation import PlacePhotos, adapt_model, read_head
from core.diagnosis.calibration import crop_of, measure_reliability, state_probabilities
from core.diagnosis.completion import compute_outputs, with_thresholds
from core.diagnosis.familiarity import read_familiarity
from core.diagnosis.features import NetworkOutputs, find_nodes, read_statistics
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.place_branch import is_branched
from core.diagnosis.prediction import Predictor
from core.diagnosis.replay import read_replay
from core.diagnosis.verdict import DecisionRule, Prediction, Verdict
from core.ops.contract import Array

PLACE = ("apple/black_rot", "apple/cedar_apple_rust", "apple/healthy", "apple/scab")
PENALTY = 0.01
"""Of the methods that are compared; the command chooses it by cross-validation."""


def read_outputs(
    model: ModelFile, root: Path, file: Path, splits: Sequence[str] = ("train", "val", "unknown"), device: str = "cpu",
) -> tuple[list[dict[str, str]], NetworkOutputs]:
    """Rows of the manifest in these splits, and the network's outputs for them, which `file` keeps."""
    rows, weights = chosen_rows(root / "manifest.csv", list(splits)), hashlib.sha256()
    for name in sorted(model.weights):
        weights.update(model.weights[name].tobytes())
    if file.is_file():
        known = np.load(file)
        if "weights" not in known.files or known["weights"] != weights.hexdigest():
            raise SystemExit(f"{file} has the outputs of another model. Name another file with --outputs.")
        at = {str(path): i for i, path in enumerate(known["path"])}
        rows = [row for row in rows if row["path"] in at]
        order = [at[row["path"]] for row in rows]
        arrays = {name: known[name][order] for name in known.files if name not in ("path", "weights")}
        return rows, NetworkOutputs(**{name: array.astype(np.float64) for name, array in arrays.items()})
    seen = compute(model, [root / row["path"] for row in rows], device)
    np.savez(file, path=[row["path"] for row in rows], weights=weights.hexdigest(), **seen.arrays)
    return rows, seen


def compute(model: ModelFile, paths: Sequence[Path], device: str = "cpu") -> NetworkOutputs:
    parts = []
    with closing(Predictor(model, device=device, batch=32, outputs=find_nodes(model.graph).names)) as predictor:
        for first in range(0, len(paths), 256):
            parts.append(compute_outputs(predictor, read_photos(model, paths[first : first + 256])).arrays)
    return NetworkOutputs(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def decide(model: ModelFile, seen: NetworkOutputs) -> tuple[list[Verdict], Array]:
    """The verdict on each photo by the model's own thresholds, and its familiarity."""
    assert model.thresholds is not None
    near, rule = read_familiarity(model).measure(seen), DecisionRule(model.classes, model.thresholds)
    verdicts = [rule.decide(Prediction(p, float(f)))
                for p, f in zip(state_probabilities(model, seen.logits), near, strict=True)]  # fmt: skip
    return verdicts, near


def read_photos(model: ModelFile, paths: Sequence[Path]) -> Array:
    return np.stack([read_photo(str(path), model.source_side) for path in paths])


def prototypes(head: LinearHead, photos: Samples, replay: Samples) -> LinearHead:
    """The nearest class mean in all features: means of the photos, and of the replay for other classes."""
    means = np.zeros_like(head.weight)
    for index in range(len(means)):
        own = photos.features[photos.labels == index]
        means[index] = (own if len(own) else replay.features[replay.labels == index]).mean(axis=0)
    return LinearHead(means, -0.5 * (means**2).sum(axis=1))


Method = Callable[[LinearHead, Samples, Samples, Samples], LinearHead]
METHODS: dict[str, Method] = {
    "head, Gaussian replay": lambda head, photos, drawn, stored: fit_head(head, photos, drawn, PENALTY),
    "head, stored features": lambda head, photos, drawn, stored: fit_head(head, photos, stored, PENALTY),
    "head, no replay": lambda head, photos, drawn, stored: fit_head(head, photos, photos, PENALTY),
    "prototypes": lambda head, photos, drawn, stored: prototypes(head, photos, drawn),
}


class Study:
    """One model and its outputs, with masks of the photos: place, others that validate, unknown crops, training."""

    def __init__(self, model: ModelFile, root: Path, file: Path, splits: list[str], device: str) -> None:
        self.device = device
        rows, self.seen = read_outputs(model, root, file, device=device)
        self.paths = [root / row["path"] for row in rows]
        names, split = np.array([name_of(row) for row in rows]), np.array([row["split"] for row in rows])
        field = np.array([row["setting"] == "field" and row["pack"] == "field" for row in rows])
        self.labels = np.array([model.classes.index(name) if name in model.classes else -1 for name in names])
        apple = field & np.isin(names, PLACE)
        self.place = np.flatnonzero(apple & np.isin(split, splits))
        self.others = np.flatnonzero((split == "val") & (self.labels >= 0) & ~apple)
        self.strange = np.flatnonzero((split == "unknown") & ~apple)
        train = np.flatnonzero((split == "train") & (self.labels >= 0) & ~(apple & ("train" in splits)))
        self.train = Samples(self.features(train), self.labels[train], train)
        if read_replay(model.extra, read_statistics(model.extra), len(model.classes)) is None:
            model = with_thresholds(replace(model, extra={}), self.seen.take(train), self.labels[train],
                                    self.seen.take(self.others), self.labels[self.others])  # fmt: skip
        self.model = model

    def features(self, rows: Array) -> Array:
        assert self.seen.features is not None
        return self.seen.features[rows]

    def logits(self, model: ModelFile, rows: Array) -> Array:
        """Logits of an adapted model: those of the head, unless it has a branch."""
        if is_branched(model.graph):
            return compute(model, [self.paths[row] for row in rows], self.device).logits
        return read_head(model).logits(self.features(rows))

    def draw(self, rows: Array, labels: Array, count: int, seed: int) -> Array:
        rng = np.random.default_rng(seed)
        return np.concatenate([rng.permutation(rows[labels == c])[:count] for c in np.unique(labels)])

    def figures(self, model: ModelFile, rows: Array, logits: Array) -> dict[str, float]:
        """Accuracy and calibration error, unless the crops are unknown, and the share with a class as verdict."""
        probabilities, labels, right = state_probabilities(model, logits), self.labels[rows], {}
        if (labels >= 0).all():
            crops = np.array([crop_of(name) for name in model.classes])
            of_crop = np.where(crops[None] == crops[labels][:, None], probabilities, -1)
            right = {"correct": float((probabilities.argmax(axis=1) == labels).mean()),
                     "correct, crop known": float((of_crop.argmax(axis=1) == labels).mean()),
                     "calibration_error": measure_reliability(probabilities, labels).error}  # fmt: skip
        verdicts, near = decide(model, replace(self.seen.take(rows), logits=logits))
        assert model.thresholds is not None
        return {
            "photos": len(rows), **right,
            "answered": float(np.mean([verdict.is_class for verdict in verdicts])),
            "unfamiliar": float((near < model.thresholds.least_familiar).mean()),
        }  # fmt: skip

    def run(self, seed: int) -> dict[str, Any]:
        """Adapt to photos drawn by seed; figures of both models on all parts, and of the methods."""
        model, chosen = self.model, self.draw(self.place, self.labels[self.place], 10, seed)
        held_out = np.setdiff1d(self.place, chosen)
        photos = Samples(self.features(chosen), self.labels[chosen], chosen)
        pixels = read_photos(model, [self.paths[row] for row in chosen])
        begin = time.process_time()
        seen = self.seen.take(chosen)
        result = adapt_model(model, PlacePhotos(pixels, photos, seen.logits, seen.spreads), seed, self.device)
        seconds = time.process_time() - begin
        after, head = result.model or model, read_head(model)
        parts = {"place": held_out, "others": self.others[seed % 3 :: 3], "unknown": self.strange}
        out: dict[str, Any] = {"processor_seconds": seconds, "changed": result.model is not None,
                               "said": " ".join(result.describe())}  # fmt: skip
        for name, rows in parts.items():
            out[name] = {"before": self.figures(model, rows, self.seen.logits[rows]),
                         "after": self.figures(after, rows, self.logits(after, rows))}  # fmt: skip
        known = read_replay(model.extra, read_statistics(model.extra), len(model.classes))
        assert known is not None
        drawn, labels = known.draw(10, seed)
        stored = self.train.take(self.draw(np.arange(len(self.train.labels)), self.train.labels, 10, seed))
        out["methods"] = {}
        for name, method in METHODS.items():
            fitted = method(head, photos, Samples(drawn, labels, labels), stored)
            out["methods"][name] = [
                float((fitted.logits(self.features(rows)).argmax(axis=1) == self.labels[rows]).mean())
                for rows in (held_out, self.others)
            ]
        return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--splits", nargs="+", default=["val"], help="splits whose orchard photos the model never saw")
    parser.add_argument("--outputs", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="one draw of photos each")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--name", default="", help="of the model in the results")
    parser.add_argument("--out", type=Path, help="results file, to which this model is added")
    options = parser.parse_args()
    study = Study(read_model(options.model), options.photos, options.outputs, options.splits, options.device)
    runs = [study.run(seed) for seed in options.seeds]
    print(json.dumps(runs, indent=1))
    if options.out:
        results = json.loads(options.out.read_text()) if options.out.is_file() else {"models": {}}
        results["models"][options.name or str(options.model)] = runs
        results["machine"] = {"cpu": platform.machine(), "python": platform.python_version()}
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
