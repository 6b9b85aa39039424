"""Compare scores of familiarity on crops that a model was not trained on.

    python -m benchmarks.unknown_crops resources/models/leaves.safetensors /tmp/joined [--out unknown_crops.json]

The photos are a folder of `benchmarks.join_photos`. Known photos are validation photos of the model's leaves;
statistics are of training photos. No test photo is read. Unknown are all other photos of crops that the model does not
know, and strawberries in the field.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.auroc import auroc
from benchmarks.diagnosis import read_squares
from benchmarks.pack_photos import chosen_rows
from benchmarks.ship_model import name_of
from core.diagnosis.calibration import crop_of
from core.diagnosis.completion import compute_outputs, sample_per_class
from core.diagnosis.familiarity import Familiarity, energy
from core.diagnosis.features import NetworkOutputs, find_nodes, fit_subspace
from core.diagnosis.metrics import softmax
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.prediction import Predictor
from core.ops.contract import Array

PER_CLASS = 40
REFUSED = 0.03
"""Share of known photos that may be refused, for the share of unknown photos refused."""
NEIGHBOURS = 5


def relative_mahalanobis(x: Array, labels: Array, asked: Array) -> Array:
    """Ren et al., 2021, with a shrunk covariance."""
    means = np.stack([x[labels == c].mean(axis=0) for c in np.unique(labels)])
    rest = x - means[np.searchsorted(np.unique(labels), labels)]
    inverses = []
    for spread in (rest, x - x.mean(axis=0)):
        covariance = spread.T @ spread / len(x)
        covariance += 0.05 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        inverses.append(np.linalg.cholesky(np.linalg.inv(covariance)))
    white = asked @ inverses[0]  # once for all classes
    near = np.min([((white - mean) ** 2).sum(axis=1) for mean in means @ inverses[0]], axis=0)
    return np.asarray((((asked - x.mean(axis=0)) @ inverses[1]) ** 2).sum(axis=1) - near)


def nearest(x: Array, asked: Array) -> Array:
    """Cosine similarity to the fifth nearest training photo (Sun et al., 2022)."""
    x, asked = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (x, asked))
    return np.asarray(np.sort(asked @ x.T, axis=1)[:, -NEIGHBOURS])


def scores(model: ModelFile, logits: Array, features: Array, labels: Array, train: Array) -> dict[str, Array]:
    """Scores of all photos; `train`: rows that the statistics are of; labels of these."""
    z = logits.astype(np.float64) / model.temperature
    x = features[train]
    seen = NetworkOutputs(z, features)
    found = {"probability": softmax(z).max(axis=1), "energy": energy(z), "nearest photos": nearest(x, features),
             "relative Mahalanobis": relative_mahalanobis(x, labels[train], features)}  # fmt: skip
    for size in (64, 128, 256):
        found[f"ViM, {size} dimensions"] = Familiarity("vim", subspace=fit_subspace(z[train], x, size)).measure(seen)
    return found


def compare(found: dict[str, Array], known: Array, groups: dict[str, Array]) -> dict[str, dict[str, list[float]]]:
    """By score and group: AUROC, FPR at 95 % TPR, and share refused at `REFUSED`."""
    return {
        name: {
            group: [round(v, 4) for v in (
                auroc(score[known], score[rows]), float((score[rows] >= np.quantile(score[known], 0.05)).mean()),
                float((score[rows] < np.quantile(score[known], REFUSED)).mean()))]
            for group, rows in groups.items()
        }
        for name, score in found.items()
    }  # fmt: skip


def compute(model: ModelFile, photos: Array, device: str) -> NetworkOutputs:
    """The network's outputs for photos uint8 ``(N, side, side, 3)``."""
    with closing(Predictor(model, device=device, batch=16, outputs=find_nodes(model.graph).names)) as predictor:
        return compute_outputs(predictor, photos)


def group_rows(
    model: ModelFile, rows: Sequence[dict[str, str]]
) -> tuple[Array, Array, Array, dict[str, Array]]:
    """Labels (-1: unknown), training leaves, known validation leaves, and the photos of each unknown group."""
    crops = {crop_of(name) for name in model.classes}
    labels = np.array([model.classes.index(name_of(row)) if name_of(row) in model.classes else -1 for row in rows])
    leaf = (labels >= 0) & np.array([row["crop"] != "background" for row in rows])
    split = np.array([row["split"] for row in rows])
    field_pack = np.array([row["pack"] == "field" for row in rows])
    names = [f"{row['crop']}, {row['setting']}" for row in rows]
    strange = np.array([row["crop"] not in crops or row["split"] == "unknown" for row in rows])
    known = leaf & ~strange & (split == "val")
    if "maize" not in crops:  # a model of the first pack
        leaf, known = leaf & ~field_pack, known & ~field_pack
    groups = {name: strange & np.array([n == name for n in names]) for name in sorted(set(names))}
    return labels, leaf & (split == "train"), known, {name: mask for name, mask in groups.items() if mask.any()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = read_model(options.model)
    rows = chosen_rows(options.photos / "manifest.csv", ["train", "val", "unknown"])
    kinds = np.unique([f"{name_of(row)} {row['setting']} {row['split']}" for row in rows], return_inverse=True)[1]
    rows = [rows[i] for i in sample_per_class(kinds, PER_CLASS, 0)]
    labels, train, known, groups = group_rows(model, rows)
    seen = compute(model, read_squares(options.photos, rows, model.source_side), options.device)
    assert seen.features is not None
    table = compare(scores(model, seen.logits, seen.features, labels, train), known, groups)
    text = json.dumps({"photos": {name: int(mask.sum()) for name, mask in groups.items()}, "scores": table}, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
