"""One temperature against temperatures by crop and by class, fitted and judged on other validation photos each.

    python -m benchmarks.crop_temperatures $LEAFCLINIC_DATA/leaves resources/models/leaves.safetensors \
        --cached .cache/logits --out benchmarks/results/crop_temperatures.json

Five folds by group (a leaf and its near-copies lie in one), drawn anew `--draws` times; each fold is judged by what the
four others fitted. Logits, the mean of both views, are computed once and kept under .cache/logits, as those of
`benchmarks.candidates` are; `--cached`: also all others that lie in these folders, of the same photos and classes. Told
are means over models and draws, and beside them those of the first model.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.validation import Fit, Temperatures, ValidationPhotos, cross_fit, draw_folds, find_photos, read_logits
from core.diagnosis.calibration import divide_logits, fit_temperature, measure_reliability
from core.diagnosis.crop import crop_of
from core.diagnosis.crop_temperatures import RIDGE, fit_class_temperatures
from core.diagnosis.figures import cross_entropy, softmax
from core.diagnosis.model_file import read_model
from core.ops.contract import Array

RIDGES = (1.0, 3.0, 10.0, 30.0)


@dataclass(frozen=True)
class Quality:
    """Wrong answers among the surest 90 and 95 %, log loss, and calibration error with bins of equal width."""

    wrong_90: float
    wrong_95: float
    loss: float
    error: float


def ways(classes: tuple[str, ...]) -> dict[str, Fit]:
    """All that is compared, by name."""
    crops = [crop_of(name) for name in classes]
    found: dict[str, Fit] = {"one temperature": lambda logits, labels: (fit_temperature(logits, labels), ())}
    for kind, groups in (("crop", crops), ("class", list(classes))):
        found |= {f"by {kind}, ridge {ridge:.0f}": fit_by(groups, ridge) for ridge in RIDGES}
    return found | {"by crop, then by class": fit_twice(crops, list(classes))}


def fit_by(groups: list[str], ridge: float) -> Fit:
    def fit(logits: Array, labels: Array) -> Temperatures:
        common = fit_temperature(logits, labels)
        return common, fit_class_temperatures(logits, labels, groups, common, ridge)

    return fit


def fit_twice(crops: list[str], classes: list[str]) -> Fit:
    """Factors by class upon those by crop."""

    def fit(logits: Array, labels: Array) -> Temperatures:
        common, by_crop = fit_by(crops, RIDGE)(logits, labels)
        finer = fit_class_temperatures(divide_logits(logits, common, by_crop), labels, classes, 1.0)
        coarse = by_crop or (common,) * len(classes)
        return common, tuple(t * f for t, f in zip(coarse, finer or (1.0,) * len(classes), strict=True))

    return fit


def judge_way(fit: Fit, logits: Array, labels: Array, folds: Array) -> Quality:
    """What the probabilities are worth, each stated by temperatures that other folds fitted."""
    calibrated = cross_fit(fit, logits, labels, folds)
    probabilities = softmax(calibrated)
    wrong = probabilities.argmax(axis=1) != labels
    surest = np.argsort(-probabilities.max(axis=1), kind="stable")
    at = [int(wrong[surest[: int(np.ceil(share * len(labels)))]].sum()) for share in (0.9, 0.95)]
    error = measure_reliability(probabilities, labels).error
    return Quality(at[0], at[1], float(cross_entropy(calibrated, labels).mean()), error)


def read_cached(folder: Path, count: int) -> list[Array]:
    """Logits of both views of that many photos, averaged, of every model whose two lie there."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        mirrored = path.with_name(f"{path.stem}-mirrored.npz")
        if mirrored.exists():
            with np.load(path) as plain, np.load(mirrored) as other:
                found.append((plain["logits"] + other["logits"]) / 2)
    return [logits for logits in found if len(logits) == count]


def judge_all(logits: list[Array], photos: ValidationPhotos, draws: int) -> dict[str, list[Quality]]:
    """By way: draws of the first model, then of the others."""
    folds = [draw_folds(photos.groups, seed) for seed in range(draws)]
    return {name: [judge_way(fit, one, photos.labels, fold) for one in logits for fold in folds]
            for name, fit in ways(photos.classes).items()}  # fmt: skip


def mean(found: list[Quality]) -> Quality:
    return Quality(*(float(np.mean([getattr(one, field.name) for one in found])) for field in fields(Quality)))


def describe(found: Quality) -> str:
    return f"{found.wrong_90:5.2f} {found.wrong_95:6.2f} {found.loss:8.4f} {found.error:8.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="model files or run folders, the first is told alone too")
    parser.add_argument("--cached", type=Path, nargs="*", default=[], help="folders with logits of further models")
    parser.add_argument("--draws", type=int, default=2, help="of folds (2)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="JSON with the means")
    options = parser.parse_args()
    models = [read_model(path) for path in options.models]
    photos = find_photos(options.photos, models[0].classes)
    logits = [sum(read_logits(model, photos, view, options.device) for view in (False, True)) / 2 for model in models]
    cached = [one for folder in options.cached for one in read_cached(folder, len(photos.labels))]
    logits += [one for one in cached if not any(np.array_equal(one, other) for other in logits[: len(models)])]
    found = judge_all(logits, photos, options.draws)
    print(f"{len(logits)} models, {len(photos.labels)} photos, {len(set(photos.groups))} groups\n"
          f"{'':24} wrong at 90 and 95 %, log loss, calibration error; the same of the first model")  # fmt: skip
    for name, all_of in found.items():
        print(f"{name:24} {describe(mean(all_of))}   {describe(mean(all_of[: options.draws]))}")
    if options.out:
        told = {"photos": len(photos.labels), "models": len(logits), "draws": options.draws,
                "ways": {name: {"mean": asdict(mean(all_of)), "first": asdict(mean(all_of[: options.draws]))}
                         for name, all_of in found.items()}}  # fmt: skip
        options.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
