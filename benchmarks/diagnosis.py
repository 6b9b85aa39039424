"""Evaluate a model on photos never seen: accuracy, calibration, coverage, rejection, robustness.

    python -m benchmarks.diagnosis resources/models/leaves.safetensors joined --split test --card

The photos are a folder of `benchmarks.join_photos`. Each reading of the test split is logged in
benchmarks/results/test_readings.json. Intervals take the manifest's groups into account. With `--card` the figures go
into the model file and the card beside it. With `--split val` nothing of the test split is touched.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.auroc import auroc
from benchmarks.model_card import render_card
from benchmarks.pack_photos import chosen_rows
from benchmarks.record import commit
from benchmarks.ship_model import name_of
from core.data.photo_reader import read_photo
from core.diagnosis.calibration import crop_of, measure_reliability, state_probabilities
from core.diagnosis.completion import compute_outputs
from core.diagnosis.familiarity import read_familiarity
from core.diagnosis.metrics import Subset, compute_metrics, describe_groups
from core.diagnosis.model_file import TEST, ModelFile, read_model, write_model
from core.diagnosis.prediction import Predictor
from core.diagnosis.thresholds import coverage_curve, is_no_leaf
from core.diagnosis.verdict import is_healthy
from core.ops.contract import Array


def turned(degrees: float) -> Callable[[Array], Array]:
    def turn(photo: Array) -> Array:
        side = photo.shape[0]
        matrix = cv2.getRotationMatrix2D(((side - 1) / 2, (side - 1) / 2), degrees, 1.0)
        return np.asarray(cv2.warpAffine(photo, matrix, (side, side), borderMode=cv2.BORDER_REPLICATE))

    return turn


def recompressed(photo: Array) -> Array:
    data = cv2.imencode(".jpg", photo[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60])[1]
    return np.ascontiguousarray(cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1])


def halved(photo: Array) -> Array:
    side = photo.shape[0]
    small = cv2.resize(photo, (side // 2, side // 2), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.resize(small, (side, side), interpolation=cv2.INTER_LINEAR))


def brightened(photo: Array) -> Array:
    return np.clip(photo.astype(np.float32) * 1.2 + 0.5, 0, 255).astype(np.uint8)


SPLITS = {"val": ("val", "unknown"), "test": ("test", "field_test", "unknown_test")}
"""Splits of the manifest; those of unknown crops last."""
CHANGES: dict[str, Callable[[Array], Array]] = {
    "turned 90": turned(90), "turned 15": turned(15), "JPEG 60": recompressed, "half size": halved,
    "20 % brighter": brightened,
}  # fmt: skip


def read_squares(root: Path, rows: list[dict[str, str]], side: int) -> Array:
    return np.stack([read_photo(str(root / r["path"]), side) for r in rows])


def accuracy_figures(logits: Array, labels: Array, rows: list[dict[str, str]], model: ModelFile) -> dict[str, Any]:
    """Accuracy over all, by crop and by setting, macro F1 with intervals, and the table of classes."""
    said = logits.argmax(axis=1)
    right = said == labels
    groups = np.unique([r["group"] for r in rows], return_inverse=True)[1]
    figures = compute_metrics(logits, labels, model.classes, groups=groups)
    crops, settings = np.array([r["crop"] for r in rows]), np.array([r["setting"] for r in rows])
    named = {"all": np.ones(len(rows), np.bool_)}
    named |= {crop: crops == crop for crop in sorted(set(crops))}
    leaves = crops != "background"
    named |= {f"{crop}, {place}": (crops == crop) & (settings == place)
              for crop in sorted(set(crops[leaves])) for place in ("lab", "field")
              if len(set(settings[crops == crop])) > 1}  # fmt: skip
    named |= {f"{place} photos of leaves": (settings == place) & leaves for place in ("lab", "field")}
    named |= {"photos of the first pack": np.array([r.get("pack", "leaves") == "leaves" for r in rows])}
    parts = [Subset.count(name, right[mask], groups[mask]) for name, mask in named.items()]
    known_crop = np.array([crop_of(model.classes[i]) for i in said]) == crops
    sick = np.array([not is_healthy(model.classes[i]) for i in said])
    truly = np.array([not is_healthy(r["condition"]) for r in rows])
    parts += [Subset.count("crop named right", known_crop[leaves], groups[leaves]),
              Subset.count("healthy or not", (sick == truly)[leaves], groups[leaves])]  # fmt: skip

    return {
        "parts": [part.to_row() for part in parts],
        "groups": describe_groups(figures),
        "macro_f1": figures.macro_f1,
        "macro_f1_interval_by_group": figures.f1_interval,
        "classes": [
            {"name": c.label, "photos": c.photos, "right": c.recall, "interval": list(c.recall_interval),
             "precision": c.precision, "f1": c.f1}
            for c in figures.per_class
        ],
    }  # fmt: skip


def rejection_figures(
    model: ModelFile, leaves: Any, kinds: Array, bare: Any, unknown: dict[str, Any]
) -> dict[str, Any]:
    """AUROC of photos without a leaf and of unknown crops; refusals at the stored thresholds.

    kinds: crop and setting of each leaf.
    """
    found = read_familiarity(model)
    index = next(i for i, name in enumerate(model.classes) if is_no_leaf(name))
    p_leaves = state_probabilities(model, leaves.logits)[:, index]
    p_bare = state_probabilities(model, bare.logits)[:, index]
    at_98 = float(np.quantile(p_bare, 0.02))
    out: dict[str, Any] = {
        "no_leaf_auroc": auroc(p_bare, p_leaves),
        "good_leaves_refused_where_98_percent_of_non_leaves_are": float((p_leaves >= at_98).mean()),
    }
    thresholds = model.thresholds
    assert thresholds is not None
    out["non_leaves_found_at_threshold"] = float((p_bare >= thresholds.no_leaf).mean())
    known = found.measure(leaves)
    out["good_leaves_refused_as_unlike"] = float((known < thresholds.least_familiar).mean())
    out["good_leaves_refused_as_unlike_by_crop"] = {
        kind: float((known[kinds == kind] < thresholds.least_familiar).mean()) for kind in np.unique(kinds).tolist()
    }
    for name, seen in unknown.items():
        strange = found.measure(seen)
        out[f"unknown {name}, AUROC"] = auroc(known, strange)
        out[f"unknown {name}, FPR at 95 % TPR"] = float((strange >= np.quantile(known, 0.05)).mean())
        out[f"unknown {name}, refused as unlike"] = float((strange < thresholds.least_familiar).mean())
    return out


def confidence_figures(probabilities: Array, labels: Array, field: Array, groups: Array) -> dict[str, Any]:
    """Calibration error of all photos, lab and field photos, and accuracy by coverage. field: bool ``(N,)``."""
    right = probabilities.argmax(axis=1) == labels
    curve = coverage_curve(probabilities.max(axis=1), right, (1.0, 0.95, 0.9, 0.8))
    return {
        "calibration_error": measure_reliability(probabilities, labels).error,
        "calibration_error_lab": measure_reliability(probabilities[~field], labels[~field]).error,
        "calibration_error_field": (in_field := measure_reliability(
            probabilities[field], labels[field], groups[field])).error,
        "calibration_error_field_by_chance": in_field.chance,
        "coverage": [[p.coverage, p.accuracy, p.wrongly_refused] for p in curve],
    }  # fmt: skip


def measure(model: ModelFile, root: Path, split: str, robust: bool, device: str) -> dict[str, Any]:
    *known, strange = SPLITS[split]
    rows = [r for r in chosen_rows(root / "manifest.csv", known) if name_of(r) in model.classes]
    labels = np.array([model.classes.index(name_of(r)) for r in rows])
    predictor = Predictor(model, device=device, batch=16)
    photos = read_squares(root, rows, model.source_side)
    seen = compute_outputs(predictor, photos)
    probabilities = state_probabilities(model, seen.logits)
    bare = np.array([r["crop"] == "background" for r in rows])
    unknown = {
        crop: compute_outputs(predictor, read_squares(root, of_crop, model.source_side))
        for crop, of_crop in by_crop(chosen_rows(root / "manifest.csv", [strange])).items()
    }
    place = np.array([r["setting"] == "field" for r in rows])
    first = np.array([r.get("pack", "leaves") == "leaves" for r in rows])
    kinds = np.array([f"{r['crop']}, {r['setting']}" for r in rows])[~bare]
    groups = np.unique([r["group"] for r in rows], return_inverse=True)[1]
    out: dict[str, Any] = {
        "split": split, **accuracy_figures(seen.logits, labels, rows, model),
        **confidence_figures(probabilities, labels, place, groups),
        "first_pack": confidence_figures(probabilities[first], labels[first], place[first], groups[first]),
        "rejection": rejection_figures(model, seen.take(~bare), kinds, seen.take(bare), unknown),
    }  # fmt: skip
    if robust:
        said = seen.logits.argmax(axis=1)
        out["changed_answers"] = {
            name: float((compute_outputs(predictor, np.stack([change(p) for p in photos])).logits.argmax(axis=1)
                         != said).mean())
            for name, change in CHANGES.items()
        }  # fmt: skip
    predictor.close()
    return out


def by_crop(rows: list[dict[str, str]]) -> dict[str, list[dict[str, str]]]:
    return {crop: [r for r in rows if r["crop"] == crop] for crop in sorted({r["crop"] for r in rows})}


def with_test(model: ModelFile, figures: dict[str, Any]) -> ModelFile:
    """The model with its test figures inside."""
    note = "On the test split: photos of leaves that were not trained on. Lab and field stand apart."
    section = {k: figures[k] for k in ("parts", "classes", "macro_f1")} | {"note": f"{note} {figures['groups']}"}
    numbers = {"test_accuracy": figures["parts"][0]["right"], "test_photos": float(figures["parts"][0]["photos"]),
               "test_macro_f1": figures["macro_f1"], "test_calibration_error": figures["calibration_error"]}
    return replace(model, sections={**model.sections, TEST: section}, figures={**model.figures, **numbers})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--split", choices=tuple(SPLITS), default="val")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--robust", action="store_true", help="also the answers on changed photos (six times as long)")
    parser.add_argument("--card", action="store_true", help="write the figures into the model and its card")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = read_model(options.model)
    figures = measure(model, options.photos, options.split, options.robust, options.device)
    figures["machine"] = {"cpu": platform.processor() or platform.machine(), "python": platform.python_version()}
    figures["commit"] = commit()
    if options.card:
        model = with_test(model, figures)
        write_model(options.model, model)
        card = options.model.with_suffix(".md")
        card.write_text(render_card(model, model.name), encoding="utf-8")
    figures["bytes"] = options.model.stat().st_size
    print(json.dumps({k: v for k, v in figures.items() if k != "classes"}, indent=1))
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
