"""How well signals of a photo tell wrong diagnoses from correct ones, on validation photos of leaves.

    python -m benchmarks.error_signals leaves /tmp/joined --outputs signals.npz --out error_signals.json

`--outputs` keeps logits of both views, features and signals, which take most of the time. No test photo is read.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from benchmarks.auroc import auroc
from benchmarks.join_photos import share_of
from benchmarks.pack_photos import chosen_rows
from benchmarks.ship_model import name_of
from core.data.photo_reader import read_photo
from core.diagnosis.calibration import state_probabilities
from core.diagnosis.class_map import ClassMapper
from core.diagnosis.familiarity import read_familiarity
from core.diagnosis.features import NetworkOutputs, find_nodes
from core.diagnosis.model_file import ModelFile, read_model
from core.diagnosis.prediction import Predictor, average_views
from core.diagnosis.segmentation import segment
from core.diagnosis.thresholds import COVERAGE, at_coverage, coverage_curve
from core.ops.contract import Array

KEPT = ("logits1", "logits2", "features", "spreads", "signals")
FOLDS = 5
COLUMNS = ("outside", "leaf", "sharpness", "brightness")
"""Signals: class activation outside the leaf, share of leaf, variance of the Laplacian, mean grey value."""


def read_signals(model: ModelFile, root: Path, rows: list[dict[str, str]], file: Path) -> dict[str, Array]:
    """Logits of both views, pooled features and `COLUMNS` of the photos, from `file` where it is there."""
    if file.is_file():
        known = np.load(file)
        at = {str(path): i for i, path in enumerate(known["path"])}
        order = [at[row["path"]] for row in rows]
        return {name: known[name][order] for name in KEPT}
    nodes = find_nodes(model.graph)
    predictor, mapper = Predictor(replace(model, views=1), batch=1, outputs=nodes.names), ClassMapper(model)
    found: dict[str, list[Array]] = {name: [] for name in KEPT}
    for row in rows:
        photo = read_photo(str(root / row["path"]), model.source_side)
        views = [predictor.predict(np.ascontiguousarray(view)[None]) for view in (photo, photo[:, ::-1])]
        maps = {name: average_views(np.concatenate([view[name] for view in views]), 2) for name in views[0]}
        seen = nodes.summarize(maps)
        assert nodes.last is not None
        assert seen.features is not None
        assert seen.spreads is not None
        logits = [view["logits"][0] for view in views]
        leaf, grey = segment(photo).leaf, cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY).astype(np.float32)
        large = read_photo(str(root / row["path"]), mapper.side)
        evidence = mapper.map_class(large, partial(np.squeeze, maps[nodes.last], 0), int(sum(logits).argmax()))
        signals = (share_outside_leaf(evidence, leaf), leaf.mean(), cv2.Laplacian(grey, cv2.CV_32F).var(), grey.mean())
        for name, value in zip(found, (*logits, seen.features[0], seen.spreads[0], np.array(signals)), strict=True):
            found[name].append(value)
    kept = {name: np.stack(values) for name, values in found.items()}
    np.savez(file, path=[row["path"] for row in rows], **kept)
    return kept


def share_outside_leaf(evidence: Array, leaf: Array) -> float:
    """Share 0..1 of the sum of a class map ``(height, width)`` outside a leaf mask; 0 if either is empty."""
    total = float(evidence.sum())
    if total <= 0 or not leaf.any():
        return 0.0
    inside = cv2.resize(leaf.astype(np.float32), evidence.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return float((evidence * (1 - inside)).sum() / total)


def fit_logistic(x: Array, right: Array) -> Array:
    """Weights of logistic regression with a ridge of 1, by Newton's method."""
    x = np.c_[np.ones(len(x)), x]
    ridge = np.diag(np.r_[1e-9, np.ones(x.shape[1] - 1)])
    weights = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ weights))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + ridge
        weights -= np.linalg.solve(curvature, x.T @ (p - right) + ridge @ weights)
    return weights


def cross_fit(columns: list[Array], right: Array, folds: Array) -> Array:
    """Probability of a correct diagnosis for each photo, by a regression on the photos of other groups."""
    x = np.stack(columns, axis=1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    out = np.empty(len(x))
    for fold in range(FOLDS):
        weights = fit_logistic(x[folds != fold], right[folds != fold].astype(float))
        out[folds == fold] = 1 / (1 + np.exp(-(np.c_[np.ones((folds == fold).sum()), x[folds == fold]] @ weights)))
    return out


def log_loss(stated: Array, right: Array) -> float:
    p = np.clip(stated, 1e-6, 1 - 1e-6)
    return round(float(-np.where(right, np.log(p), np.log(1 - p)).mean()), 4)


def measure(model: ModelFile, rows: list[dict[str, str]], seen: dict[str, Array]) -> dict[str, object]:
    """AUROC of each signal against being wrong, of all leaves and of those with a class as verdict."""
    labels = np.array([model.classes.index(name_of(row)) for row in rows])
    logits = (seen["logits1"] + seen["logits2"]) / 2
    one, two, both = (state_probabilities(model, z) for z in (seen["logits1"], seen["logits2"], logits))
    top, right = both.max(axis=1), both.argmax(axis=1) == labels
    near = read_familiarity(model).measure(NetworkOutputs(logits, seen["features"], seen["spreads"]))
    thresholds = model.thresholds
    assert thresholds is not None
    threshold = at_coverage(coverage_curve(top, right), COVERAGE).threshold
    leaves = np.array([row["crop"] != "background" for row in rows])
    answered = leaves & (near >= thresholds.least_familiar) & (top >= threshold)
    outside, leaf, sharp, bright = seen["signals"].T.astype(np.float64)
    ordered, apart = np.sort(both, axis=1), np.abs(one - two).sum(axis=1) / 2
    signals = {
        "1 - stated probability": 1 - top, "margin between the two likeliest classes": ordered[:, -2] - ordered[:, -1],
        "disagreement of the two views": apart, "unfamiliarity": -near, "blur": -np.log(sharp + 1e-3),
        "large leaf": leaf, "darkness": -bright, "class activation outside the leaf": outside,
    }  # fmt: skip
    odds, blur = np.log(top / (1 - top + 1e-9) + 1e-9), signals["blur"]
    folds = np.array([int(share_of(row["group"]) * 2**32) % FOLDS for row in rows])[leaves]
    fitted = {"all combined": [odds, near, apart, outside, blur, leaf], "stated probability alone": [odds]}
    cross = {name: cross_fit([c[leaves] for c in columns], right[leaves], folds) for name, columns in fitted.items()}
    for name, shown in (("all combined", "all combined (logistic regression, cross-fitted)"),
                        ("stated probability alone", "stated probability alone (the same)")):
        signals[shown] = np.zeros(len(rows))
        signals[shown][leaves] = 1 - cross[name]
    return {
        "photos": int(leaves.sum()), "wrong": int((leaves & ~right).sum()), "answered": int(answered.sum()),
        "wrong_answered": int((answered & ~right).sum()),
        "log_loss": {"stated probability": log_loss(top[leaves], right[leaves]),
                     **{name: log_loss(values, right[leaves]) for name, values in cross.items()}},
        "signals": {name: [round(auroc(v[kept & ~right], v[kept & right]), 3) for kept in (leaves, answered)]
                    for name, v in signals.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--outputs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = read_model(options.model)
    rows = [row for row in chosen_rows(options.photos / "manifest.csv", ["val"]) if name_of(row) in model.classes]
    found = measure(model, rows, read_signals(model, options.photos, rows, options.outputs))
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
