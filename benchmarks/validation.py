"""What models are chosen by: logits on the validation photos, and the figures that follow from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from benchmarks.pack_photos import chosen_rows
from benchmarks.ship_model import name_of
from core.data.photo import read_photo
from core.diagnosis.calibration import divide_logits
from core.diagnosis.coverage import coverage_curve
from core.diagnosis.crop_temperatures import fit_temperatures
from core.diagnosis.figures import judge, softmax
from core.diagnosis.model_file import ModelFile
from core.diagnosis.prediction import Predictor
from core.graph import to_json
from core.ops.contract import Array

CACHE = Path(".cache/logits")
"""Under the current folder: logits of judged models, some 400 kB each."""
CHUNK = 64
COVERED = 0.9
FOLDS = 5

Temperatures: TypeAlias = tuple[float, tuple[float, ...]]
Fit: TypeAlias = Callable[[Array, Array], Temperatures]
"""From logits ``(N, classes)`` and labels ``(N,)`` to the common temperature and those of the classes."""


@dataclass(frozen=True)
class Score:
    """Shares 0..1 of validation photos right: in all, of field photos of leaves, of the 90 % answered surest, of crops.

    wrong: answers among those 90 % that are not right. nll, field_nll, bean_nll: mean negative log likelihood of all,
    of field photos and of beans. Probabilities are by temperatures that photos of other groups fitted (`cross_fit`).
    """

    right: float
    field: float
    covered: float
    macro_f1: float
    bean: float = 0.0
    tomato: float = 0.0
    wrong: int = 0
    nll: float = 0.0
    field_nll: float = 0.0
    bean_nll: float = 0.0

    @property
    def mean(self) -> float:
        return (self.right + self.field) / 2

    @property
    def loss(self) -> float:
        return (self.nll + self.field_nll + self.bean_nll) / 3


@dataclass(frozen=True)
class ValidationPhotos:
    """Photos of the split whose class a model knows. labels: indices ``(N,)``; crops, field: ``(N,)``; groups ``(N,)``:
    of one leaf or of near-copies."""

    paths: tuple[str, ...]
    classes: tuple[str, ...]
    labels: Array
    crops: Array
    field: Array
    groups: Array

    def chunks(self, side: int) -> Iterator[Array]:
        """Squares uint8 ``(n, side, side, 3)``, in order: all at once are 650 MB."""
        for first in range(0, len(self.paths), CHUNK):
            yield np.stack([read_photo(path, side) for path in self.paths[first : first + CHUNK]])


def find_photos(root: Path, classes: Sequence[str], every: int = 1) -> ValidationPhotos:
    """The validation photos under a folder with a manifest; `every`: only each so-manieth."""
    rows = [r for r in chosen_rows(root / "manifest.csv", ["val"], []) if name_of(r) in classes][::every]
    return ValidationPhotos(
        tuple(str(root / r["path"]) for r in rows), tuple(classes),
        np.array([classes.index(name_of(r)) for r in rows]), np.array([r["crop"] for r in rows]),
        np.array([r["setting"] == "field" and r["crop"] != "background" for r in rows]),
        np.array([r.get("group") or r["path"] for r in rows]),
    )  # fmt: skip


def read_logits(model: ModelFile, photos: ValidationPhotos, mirrored: bool, device: str = "cpu") -> Array:
    """Logits ``(N, classes)`` of one view, from the cache where the same weights saw the same photos before."""
    path = CACHE / f"{_fingerprint(model, photos)}{'-mirrored' if mirrored else ''}.npz"
    if path.exists():
        with np.load(path) as kept:
            return np.asarray(kept["logits"])
    predictor = Predictor(replace(model, sections={}, extra={}, views=1), device=device, batch=CHUNK)
    try:
        parts = [predictor.predict(np.ascontiguousarray(squares[:, :, ::-1] if mirrored else squares))["logits"]
                 for squares in photos.chunks(model.source_side)]
    finally:
        predictor.close()
    CACHE.mkdir(parents=True, exist_ok=True)
    np.savez(path, logits=np.concatenate(parts))
    return np.concatenate(parts)


def draw_folds(groups: Array, seed: int) -> Array:
    """The fold of each photo, int ``(N,)``; photos of a group share it."""
    names, places = np.unique(groups, return_inverse=True)
    return np.asarray(np.random.default_rng(seed).integers(0, FOLDS, len(names))[places])


def cross_fit(fit: Fit, logits: Array, labels: Array, folds: Array) -> Array:
    """Logits over the temperatures that the photos of other folds fitted, ``(N, classes)``."""
    calibrated = np.empty(logits.shape)
    for fold in range(FOLDS):
        judged = folds == fold
        calibrated[judged] = divide_logits(logits[judged], *fit(logits[~judged], labels[~judged]))
    return calibrated


def score(logits: Array, photos: ValidationPhotos) -> Score:
    """What the answers and their probabilities are worth."""
    labels = photos.labels
    right = logits.argmax(axis=1) == labels
    folds = draw_folds(photos.groups, 0)
    calibrated = cross_fit(lambda some, known: fit_temperatures(some, known, photos.classes), logits, labels, folds)
    probabilities = softmax(calibrated)
    point = coverage_curve(probabilities.max(axis=1), right, (COVERED,))[0]
    answered = probabilities.max(axis=1) >= point.threshold
    nll = -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-12))
    macro_f1 = judge(logits, labels, photos.classes).macro_f1
    return Score(
        float(right.mean()), _mean(right[photos.field]), point.accuracy, macro_f1,
        _mean(right[photos.crops == "bean"]), _mean(right[photos.crops == "tomato"]),
        int((answered & ~right).sum()), float(nll.mean()), _mean(nll[photos.field]), _mean(nll[photos.crops == "bean"]),
    )  # fmt: skip


def describe(found: Score) -> str:
    """The figures in one line."""
    return (f"log loss {found.loss:.4f} ({found.nll:.4f} in all, {found.field_nll:.4f} field, "
            f"{found.bean_nll:.4f} bean)  "
            f"{100 * found.mean:.2f} mean  {100 * found.right:.2f} % in all  {100 * found.field:.2f} % field  "
            f"{100 * found.bean:.2f} % bean  {100 * found.tomato:.2f} % tomato  "
            f"{100 * found.covered:.2f} % at 90 % coverage ({found.wrong} wrong)  "
            f"macro F1 {found.macro_f1:.4f}")


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else 0.0


def _fingerprint(model: ModelFile, photos: ValidationPhotos) -> str:
    """Of all that logits depend on, but for the engine."""
    digest = hashlib.sha256(f"{to_json(model.graph)} {model.source_side} {photos.paths}".encode())
    for name in sorted(model.weights):
        digest.update(np.ascontiguousarray(model.weights[name]).data)
    return digest.hexdigest()[:32]
