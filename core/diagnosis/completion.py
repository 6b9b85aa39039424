"""Completes a trained model: calibration, rejection thresholds, feature statistics and background tests.

Runs once after training, on training and validation photos only; the results are stored in the model file.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from core.communicator import SINGLE, Communicator
from core.data.dataset import ReportStage, ignore
from core.diagnosis import background_dependence
from core.diagnosis.background_dependence import BackgroundDependence, Baseline, measure_backgrounds
from core.diagnosis.calibration import (
    calibrate_logits,
    fit_scales,
    fit_temperature,
    label_thresholds,
    measure_reliability,
    state_probabilities,
)
from core.diagnosis.familiarity import fit_familiarity
from core.diagnosis.features import NetworkOutputs, find_nodes, head_node
from core.diagnosis.metrics import find_correct
from core.diagnosis.model_file import CALIBRATION, ModelFile
from core.diagnosis.prediction import Predictor
from core.diagnosis.replay import fit_replay
from core.diagnosis.segmentation import segment
from core.diagnosis.thresholds import SECTION, set_thresholds, without_leaf
from core.ops.contract import Array

PER_CLASS: Final = 100
"""Training photos per class for the feature statistics."""
BACKGROUND_PHOTOS: Final = 300
"""Most validation photos in the background tests."""
CHUNK: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPhotos:
    """Photos, uint8 ``(N, side, side, 3)``; labels: int ``(N,)``, or bool ``(N, classes)`` of photos with several;
    groups: int ``(N,)``, needed of validation photos in groups."""

    photos: Array
    labels: Array
    groups: Array | None = None

    def take(self, rows: Array) -> LabelledPhotos:
        return LabelledPhotos(self.photos[rows], self.labels[rows])


def complete_model(
    model: ModelFile, train: LabelledPhotos, validation: LabelledPhotos, *, device: str = "cpu", threads: int = 0,
    seed: int = 0, report: ReportStage = ignore, baseline: Baseline | None = None, communicator: Communicator = SINGLE,
) -> ModelFile:  # fmt: skip
    """Return the model with temperatures, sections and feature statistics; its weights are unchanged.

    baseline: the border baseline, None to skip the background tests; communicator: of ranks that all call this with the
    same arguments, and share the work.
    """
    outputs = find_nodes(model.graph).names
    with closing(Predictor(model, device=device, batch=CHUNK, threads=threads, outputs=outputs)) as predictor:
        rows = sample_per_class(train.labels, PER_CLASS, seed)
        few = train if len(rows) == len(train.labels) else train.take(rows)  # no second copy of all photos
        known = compute_outputs(predictor, few.photos, report, "features", communicator)
        seen = compute_outputs(predictor, validation.photos, report, "calibration", communicator)
        model = _with_scales(model, seen.logits, validation.labels)
        model = with_thresholds(model, known, few.labels, seen, validation.labels)
        sections = dict(model.sections)
        if baseline is not None:
            reading = measure_dependence(model, predictor, validation, baseline, seed, report, communicator)
            sections |= {background_dependence.SECTION: asdict(reading)} if reading else {}
    stated = state_probabilities(model, seen.logits)
    found = measure_reliability(stated, validation.labels, validation.groups, label_thresholds(model))
    sections |= {CALIBRATION: asdict(found)} if found.bins else {}
    return replace(model, sections=sections)


def sample_per_class(labels: Array, most: int, seed: int) -> Array:
    """Sorted random rows with at most `most` photos of each class or label set, by seed."""
    rng, kinds = np.random.default_rng(seed), number_kinds(labels)
    parts = [rng.permutation(np.flatnonzero(kinds == kind))[:most] for kind in np.unique(kinds)]
    return np.sort(np.concatenate(parts))


def number_kinds(labels: Array) -> Array:
    """A number for each class, or for each label set of photos with several labels, int ``(N,)``."""
    return np.unique(labels, axis=0, return_inverse=True)[1].ravel()


def compute_outputs(
    predictor: Predictor, photos: Array, report: ReportStage = ignore, stage: str = "",
    communicator: Communicator = SINGLE,
) -> NetworkOutputs:  # fmt: skip
    """Compute logits and summaries of the maps among the predictor's outputs, in chunks: all maps take gigabytes."""
    parts: list[dict[str, Array]] = []
    own = photos[communicator.own_rows(len(photos))]
    for first in range(0, len(own), CHUNK):
        parts.append(predictor.nodes.summarize(predictor.predict(np.asarray(own[first : first + CHUNK]))).arrays)
        report(stage, min(first + CHUNK, len(own)), len(own))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    return NetworkOutputs(**communicator.join_rows(joined))


def _with_scales(model: ModelFile, logits: Array, labels: Array) -> ModelFile:
    if model.multilabel:
        return replace(model, temperature=fit_temperature(logits, labels))
    temperature, by_class, offset = fit_scales(logits, labels, model.classes)
    return replace(model, temperature=temperature, class_temperatures=by_class, offset=offset)


def with_thresholds(
    model: ModelFile, known: NetworkOutputs, known_labels: Array, seen: NetworkOutputs, labels: Array
) -> ModelFile:
    leaves, validated = (np.flatnonzero(~without_leaf(part, model.classes)) for part in (known_labels, labels))
    leaves = leaves if len(leaves) else np.arange(len(known_labels))
    kinds = number_kinds(known_labels[leaves])
    found = fit_familiarity(known.take(leaves), kinds, seen.take(validated), model.temperature)
    replay: dict[str, Array] = {}
    if found.subspace is not None and known.features is not None and not model.multilabel:
        weight = model.weights[f"{head_node(model.graph).name}.weight"]
        linear = weight.shape[1:] == known.features.shape[1:]
        replay = fit_replay(known.features, known_labels, len(model.classes), found.subspace) if linear else {}
    stated = state_probabilities(model, seen.logits)
    thresholds = set_thresholds(stated, labels, found.measure(seen), found.score, model.classes)
    extra = {**model.extra, **found.to_arrays(), **replay}
    return replace(model, sections={**model.sections, SECTION: thresholds.to_section()}, extra=extra)


def measure_dependence(
    model: ModelFile, predictor: Predictor, validation: LabelledPhotos, baseline: Baseline, seed: int,
    report: ReportStage, communicator: Communicator,
) -> BackgroundDependence | None:  # fmt: skip
    """The results of the border baseline and of changed backgrounds; None if no leaf is found in any photo."""
    rows = np.flatnonzero(~without_leaf(validation.labels, model.classes))
    rows = np.sort(np.random.default_rng(seed).permutation(rows)[:BACKGROUND_PHOTOS])
    masks = _segment_leaves(validation.photos, rows, communicator)
    found = np.flatnonzero([mask.any() for mask in masks])
    if not len(found):
        return None
    tested, masks = validation.take(rows[found]), masks[found]

    def find_right(photos: Array) -> Array:
        logits = compute_outputs(predictor, photos, report, "background", communicator).logits
        return find_correct(calibrate_logits(model, logits), tested.labels, label_thresholds(model))

    kinds = number_kinds(tested.labels)
    shares = measure_backgrounds(tested.photos, masks, kinds, find_right, seed)
    chance = float(np.bincount(kinds).max() / len(kinds))
    return BackgroundDependence(len(kinds), baseline.border, baseline.commonest, *shares, chance)


def _segment_leaves(photos: Array, rows: Array, communicator: Communicator) -> Array:
    """Leaf masks of these rows, bool ``(N, side, side)``."""
    own = [segment(photos[row]).leaf for row in rows[communicator.own_rows(len(rows))]]
    return communicator.join_rows({"masks": np.array(own)} if own else {}).get("masks", np.zeros((0, 1, 1), bool))
