"""Wrong labels found, and the learning curve of chosen photos, on labels whose errors are known.

    python -m benchmarks.label_review $LEAFCLINIC_DATA/leaves --features /tmp/features

Labels are flipped on purpose to another class of the same crop. Errors that the labels had before count against us.
Two sets: validation photos of crops that the model `leaves` knows, and training photos of crops that the model
`permissive` does not know. The curve starts with 20 labelled photos; groups that are held out measure it. Reads no
test split. `--features` keeps the features, which take most of the time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pack_photos import chosen_rows
from benchmarks.record import FOLDER, commit, processor
from core.data.photo_reader import read_photo
from core.diagnosis.completion import compute_outputs
from core.diagnosis.features import feature_node
from core.diagnosis.head_fitting import Samples
from core.diagnosis.label_review import choose_photos, fit_classes, project_features, review_labels
from core.diagnosis.model_file import read_model
from core.diagnosis.prediction import Predictor
from core.ops.contract import Array

SETS = {
    "known crops": ("leaves", "val", (), 1000),
    "unknown crops": ("permissive", "train", ("apple", "strawberry", "tomato"), 60),
}
"""Model, split, crops (all if empty) and most photos of a class."""
SHARES = (0.05, 0.1)
TOP = (10, 25, 50)
SEEDS = 5
CURVE_SEEDS = 10
START, STEP, ROUNDS = 20, 20, 5
T95 = {5: 2.776, 10: 2.262}
"""Quantiles of Student's t for a 95 % interval of the mean of so many seeds."""


def read_set(root: Path, name: str, folder: Path) -> tuple[Samples, tuple[str, ...]]:
    """Features, labels and groups of a set, and its classes."""
    model_name, split, crops, most = SETS[name]
    rows = chosen_rows(root / "manifest.csv", [split], without=("rice",), only=crops)
    names = np.array([f"{row['crop']}/{row['condition']}" for row in rows])
    rng = np.random.default_rng(0)
    picked = [np.sort(rng.permutation(np.flatnonzero(names == one))[:most]) for one in np.unique(names)]
    rows = [rows[at] for at in np.concatenate(picked)]
    file = folder / f"{model_name}.npz"
    known = dict(np.load(file)) if file.is_file() else {"path": np.empty(0, "U1"), "features": np.empty((0, 0))}
    at = {str(path): i for i, path in enumerate(known["path"])}
    missing = [row["path"] for row in rows if row["path"] not in at]
    if missing:
        new = compute_features(root, model_name, missing)
        old = known["features"] if len(at) else new[:0]
        known = {"path": np.r_[known["path"], missing], "features": np.r_[old, new]}
        np.savez(file, **known)
        at = {str(path): i for i, path in enumerate(known["path"])}
    features = known["features"][[at[row["path"]] for row in rows]].astype(np.float32)
    classes, labels = np.unique([f"{row['crop']}/{row['condition']}" for row in rows], return_inverse=True)
    groups = np.unique([row["group"] for row in rows], return_inverse=True)[1]
    return Samples(features, labels, groups), tuple(map(str, classes))


def compute_features(root: Path, name: str, paths: list[str]) -> Array:
    model = read_model(Path(name))
    node = feature_node(model.graph)
    assert node is not None
    predictor = Predictor(model, batch=16, threads=1, outputs=(node,))
    parts = []
    for first in range(0, len(paths), 64):
        photos = np.stack([read_photo(str(root / path), model.source_side) for path in paths[first : first + 64]])
        found = compute_outputs(predictor, photos).features
        assert found is not None
        parts.append(found.astype(np.float16))
        print(f"{name}: {first + len(photos)} of {len(paths)} photos", flush=True)
    return np.concatenate(parts)


def flip(labels: Array, classes: tuple[str, ...], share: float, seed: int) -> Array:
    """Labels of which `share` are those of another class of the same crop, at random."""
    rng = np.random.default_rng(seed)
    crops = np.array([name.split("/")[0] for name in classes])
    others = [np.flatnonzero((crops == crop) & (np.arange(len(crops)) != at)) for at, crop in enumerate(crops)]
    possible = np.flatnonzero([len(others[label]) > 0 for label in labels])
    flipped = labels.copy()
    for row in rng.permutation(possible)[: round(share * len(labels))]:
        flipped[row] = rng.choice(others[labels[row]])
    return flipped


def find_flips(photos: Samples, classes: tuple[str, ...], share: float, seed: int) -> dict[str, float]:
    labels = flip(photos.labels, classes, share, seed)
    wrong = labels != photos.labels
    review = review_labels(Samples(photos.features, labels, photos.groups), len(classes))
    rows = np.array([suspect.row for suspect in review.suspects])
    suggested = np.array([suspect.suggested for suspect in review.suspects])
    found = {f"precision at {k}": float(wrong[rows[:k]].mean()) for k in TOP}
    return {**found, "precision at the number flipped": float(wrong[rows[: wrong.sum()]].mean()),
            "suspects": len(rows), "precision of all suspects": float(wrong[rows].mean()),
            "flips found": float(wrong[rows].sum() / wrong.sum()),
            "right suggestions": float((suggested == photos.labels[rows])[wrong[rows]].mean())}  # fmt: skip


def learn(photos: Samples, classes: int, seed: int, choose: bool) -> list[float]:
    """Accuracy on held-out groups after each round."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(int(photos.groups.max()) + 1)
    held_out = np.isin(photos.groups, groups[: len(groups) * 3 // 10])
    test, pool = np.flatnonzero(held_out), rng.permutation(np.flatnonzero(~held_out))
    known, pool = pool[:START], pool[START:]
    x = project_features(photos.features)
    curve = []
    for _ in range(ROUNDS + 1):
        head = fit_classes(Samples(x[known], photos.labels[known], known), classes)
        curve.append(float((head.logits(x[test]).argmax(axis=1) == photos.labels[test]).mean()))
        taken = np.arange(STEP)
        if choose:
            taken = choose_photos(photos.take(known), photos.features[pool], classes, STEP, seed)
        known, pool = np.r_[known, pool[taken]], np.delete(pool, taken)
    return curve


def summarise(values: list[Any]) -> dict[str, Any]:
    """Mean and half the width of its 95 % interval over seeds."""
    table = np.array(values, np.float64)
    half = T95[len(table)] * table.std(axis=0, ddof=1) / np.sqrt(len(table))
    return {"mean": np.round(table.mean(axis=0), 4).tolist(), "half": np.round(half, 4).tolist()}


def measure_set(root: Path, name: str, folder: Path, said: Callable[[str], None]) -> dict[str, Any]:
    photos, classes = read_set(root, name, folder)
    result: dict[str, Any] = {
        "model": SETS[name][0], "photos": len(photos.labels), "classes": len(classes),
        "groups": len(np.unique(photos.groups)), "agreement": review_labels(photos, len(classes)).agreement,
    }  # fmt: skip
    for share in SHARES:
        runs = [find_flips(photos, classes, share, seed) for seed in range(SEEDS)]
        result[f"{share:.0%} flipped"] = {key: summarise([run[key] for run in runs]) for key in runs[0]}
        said(f"{name}, {share:.0%}: {result[f'{share:.0%} flipped']}")
    curves = {kind: [learn(photos, len(classes), seed, kind == "chosen") for seed in range(CURVE_SEEDS)]
              for kind in ("chosen", "random")}  # fmt: skip
    gains = np.array(curves["chosen"]) - np.array(curves["random"])
    result["curve"] = {"labelled": [START + STEP * at for at in range(ROUNDS + 1)],
                       **{kind: summarise(runs) for kind, runs in curves.items()}, "gain": summarise(list(gains))}
    said(f"{name}: {result['curve']}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--features", type=Path, required=True, help="folder of computed features")
    options = parser.parse_args()
    sets = {name: measure_set(options.photos, name, options.features, lambda text: print(text, flush=True))
            for name in SETS}
    result = {"benchmark": "label_review", "machine": processor(), "commit": commit(), "seeds": [SEEDS, CURVE_SEEDS],
              "sets": sets}
    (FOLDER / "label_review.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
