"""Evaluates a model on photos with known classes: of a folder or manifest, by setting, and on field photos."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from core.config import RunConfig
from core.data.cache import PhotoCache, open_cache
from core.data.dataset import SPLIT_NAMES, UNSPLIT, Dataset, describe_skipped, reasons
from core.data.field_photos import describe_field, open_field, scan_field
from core.data.label_sets import join_labels, name_labels
from core.data.manifest import list_settings
from core.data.photo_groups import find_groups
from core.data.preparation import GroupedPhotos, PhotoSet
from core.data.source import open_photos
from core.data.split import read_split
from core.diagnosis.calibration import label_thresholds, measure_reliability
from core.diagnosis.metrics import OWN_FIELD, Metrics, Subset, compute_metrics, find_correct, subsets_by_setting
from core.diagnosis.model_file import ModelFile, check_classes
from core.diagnosis.prediction import Predictor
from core.diagnosis.thresholds import without_leaf
from core.diagnosis.training_photos import Overlap, describe_overlap, measure_overlap
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, Prediction
from core.errors import DataError
from core.ops.contract import Array
from core.percent import rounded
from core.plan import choose_device

BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class CoverageResult:
    """Diagnoses at one confidence threshold.

    wanted: the coverage on validation photos that sets the threshold; photos, answered, right: numbers of photos, of
    photos with a diagnosis, and of correct diagnoses; wrongly_refused: rejected share of the correct diagnoses;
    measured: whether validation photos set the threshold.
    """

    wanted: float
    photos: int
    answered: int
    right: int
    wrongly_refused: float
    measured: bool = True

    def describe(self) -> str:
        by = " (set on validation photos)" if self.measured else " (which changes nothing here)"
        right, share = self.right / max(self.answered, 1), self.answered / max(self.photos, 1)
        return (
            f"At coverage {100 * self.wanted:g} %{by}, {self.answered} of {self.photos} photos are diagnosed "
            f"({rounded(share)} %), {rounded(right)} % of these diagnoses are correct, and "
            f"{100 * self.wrongly_refused:.1f} % of the correct predictions are rejected."
        )


def measure_coverage(
    words: Sequence[str], labels: Array, right: Array, classes: Sequence[str], wanted: float
) -> CoverageResult:
    """Count diagnoses and correct diagnoses.

    words: the verdict on each photo (a class counts as a diagnosis, and so does "no leaf" if the model has a class for
    it); labels: int ``(N,)``, or bool ``(N, classes)``; right: bool ``(N,)``, whether the most likely class is the true
    one, or all labels are right.
    """
    said_bare = np.array([word == NO_LEAF for word in words])
    answered = said_bare | np.array([word not in (NOT_SURE, NO_LEAF) for word in words])
    good = np.where(said_bare, without_leaf(labels, classes), right)
    lost = int((right & ~(answered & good)).sum())
    return CoverageResult(wanted, len(words), int(answered.sum()), int((answered & good).sum()),
                    lost / max(int(right.sum()), 1))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mistake:
    """A misclassified photo, with the predicted class and its probability."""

    path: str
    label: str
    predicted: str
    probability: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a model predicts the labels of a set of photos; a run adds its tests (`training.run_evaluation`).

    name: of these photos in sentences; places: subsets by setting, if known; field: on the user's own field photos;
    unseen: on photos in no group of a training photo, None if those are all or none; calibration_error: expected
    calibration error, 0..1, None without predictions; chance_error: that of a perfectly calibrated model. What only
    `evaluate_model` measures: answered: at the coverage asked for; mistakes: most confident first; overlap: how
    many photos the model was trained on, None if its file does not contain its training photos; known: the same as
    sentences, with photos of their groups; outcomes: of each photo, also of the field photos, the SHA-256 of its file
    and whether its prediction is right.
    """

    figures: Metrics
    name: str = "these photos"
    places: tuple[Subset, ...] = ()
    field: Metrics | None = None
    unseen: Metrics | None = None
    calibration_error: float | None = None
    chance_error: float = 0.0
    answered: CoverageResult | None = None
    mistakes: tuple[Mistake, ...] = ()
    overlap: tuple[Overlap, ...] | None = None
    known: tuple[str, ...] = ()
    outcomes: tuple[tuple[bytes, bool], ...] = ()

    @property
    def parts(self) -> tuple[Subset, ...]:
        """The subsets by setting, or all photos, beside the own field photos; without these the subsets alone."""
        if self.field is None:
            return self.places
        return (*(self.places or (Subset.whole(self.name, self.figures),)), Subset.whole(OWN_FIELD, self.field))


def evaluate_model(
    model: ModelFile, config: RunConfig, split: str, coverage: float | None, fallback: str
) -> tuple[Evaluation, tuple[str, ...]]:
    """Evaluate a model on the photos of `config`; also returns sentences about skipped photos.

    split: name of the split to use, or ""; from the file `config.split`, else from the source, else from the file
    `fallback`. Classes are matched by name. Raises DataError if the photos have classes that the model does not have.
    """
    scanned = scan_field(config)
    photos, kept, lost = _open_split(config, split, model, fallback)
    own = None if scanned is None else open_field(scanned, model.classes, model.source_side, config, model.multilabel)
    labels, field, answered = photos.dataset.labels_among(model.classes, model.multilabel)[kept], None, None
    with closing(Predictor(model, device=choose_device(config.device), batch=BATCH, threads=config.threads)) as made:
        predictions, stated, logits = _predict(made, photos.cache, kept)
        new = None if model.learned is None else model.learned.unseen(photos.cache.content, photos.groups, kept)
        result, evaluated = evaluate_rows(logits, photos, kept, model, new), [("evaluated", photos, kept)]
        right = np.array([correct for _, correct in result.outcomes])
        if own is not None:
            evaluated.append(("field", own, own.cache.kept))
            field = evaluate_rows(_predict(made, own.cache, own.cache.kept)[2], own, own.cache.kept, model)
        if coverage is not None:
            rule = replace(made.rule, coverage=coverage)
            words = [rule.decide(prediction).word for prediction in predictions]
            own_curve = model.thresholds is not None and not model.multilabel
            answered = replace(measure_coverage(words, labels, right, model.classes, coverage), measured=own_curve)
    overlap = measure_overlap(model.learned, [(name, of.cache.content[rows]) for name, of, rows in evaluated])
    known = describe_overlap("The model", model.learned, overlap)
    if new is not None and overlap and (related := int((~new).sum()) - overlap[0].learned):
        known += (f"Data leakage: {related} photos have one of the same group in training. The accuracy is too high.",)
    reliability = measure_reliability(stated, labels, photos.groups[kept], label_thresholds(model))
    return replace(
        result, field=None if field is None else field.figures, answered=answered, overlap=overlap, known=known,
        calibration_error=reliability.error if reliability.bins else None, chance_error=reliability.chance,
        mistakes=_mistakes(stated, photos.dataset, kept[~right], np.flatnonzero(~right), model),
        outcomes=result.outcomes + (() if field is None else field.outcomes),
    ), tuple(filter(None, (describe_skipped(photos.cache.skipped), lost, *describe_field(own))))  # fmt: skip


def evaluate_rows(
    logits: Array, photos: GroupedPhotos | PhotoSet, rows: Array, model: ModelFile, new: Array | None = None
) -> Evaluation:
    """Evaluate calibrated logits ``(N, classes)`` of these rows; new: `TrainingPhotos.unseen`, None if unknown."""
    labels = photos.dataset.labels_among(model.classes, model.multilabel)[rows]
    groups, thresholds = photos.groups[rows], label_thresholds(model)
    right, unseen = find_correct(logits, labels, thresholds), None
    if new is not None and 0 < new.sum() < len(rows):
        unseen = compute_metrics(logits[new], labels[new], model.classes, thresholds, groups[new])
    return Evaluation(
        compute_metrics(logits, labels, model.classes, thresholds, groups), unseen=unseen,
        places=subsets_by_setting(right, labels, model.classes, list_settings(photos.dataset, rows), groups),
        outcomes=tuple(zip((content.tobytes() for content in photos.cache.content[rows]), right.tolist(), strict=True)),
    )  # fmt: skip


def _open_split(config: RunConfig, split: str, model: ModelFile, fallback: str) -> tuple[GroupedPhotos, Array, str]:
    """Open the photos of `config`, and select those of the split, as `read_split`.

    Raises DataError if none is left, or if the model does not have a class of them.
    """
    dataset = open_photos(config.data, config.label, config.where)
    file = config.split or (fallback if np.all(dataset.splits == UNSPLIT) else "")
    if split and not file:
        dataset = dataset.take(dataset.rows(SPLIT_NAMES[split]))
    cache = open_cache(dataset, model.source_side, folder=config.cache, threads=config.threads)
    kept, lost = cache.kept, ""
    if split and file:
        splits, lost = read_split(Path(file), dataset, cache, bool(config.where))
        kept = np.flatnonzero(splits == SPLIT_NAMES[split])
    if not len(kept):
        reason = f" ({reasons(cache.skipped)})" if cache.skipped else ""
        raise DataError(f"There are no {split + ' ' if split else ''}photos in {config.data} to evaluate on{reason}.")
    named = [dataset.classes[i] for i in np.unique(dataset.labels[kept])]
    check_classes(model, [label for name in named for label in name_labels(name, model.multilabel)])
    return GroupedPhotos(dataset, cache, *find_groups(dataset, cache)), kept, lost


def _predict(predictor: Predictor, cache: PhotoCache, rows: Array) -> tuple[list[Prediction], Array, Array]:
    """The predictions, their probabilities ``(N, classes)``, and logits with these probabilities."""
    found = [prediction for first in range(0, len(rows), BATCH)
             for prediction in predictor.predict_calibrated(cache.gather(rows[first : first + BATCH]))]  # fmt: skip
    stated = np.stack([prediction.probabilities for prediction in found])
    logits = np.log(stated + 1e-300)
    return found, stated, logits - np.log1p(1e-16 - stated) if predictor.model.multilabel else logits


def _mistakes(table: Array, dataset: Dataset, rows: Array, places: Array, model: ModelFile) -> tuple[Mistake, ...]:
    """List the misclassified photos; table: probabilities, rows: in the dataset, places: in `table`."""
    found = []
    for row, stated in zip(rows.tolist(), table[places], strict=True):
        predicted = [int(stated.argmax())]
        if model.multilabel:
            predicted = np.flatnonzero(stated >= label_thresholds(model)).tolist()
        word = join_labels([model.classes[at] for at in predicted]) if predicted else NOT_SURE
        found.append(Mistake(dataset.path(row), dataset.label(row), word, float(stated[predicted].max(initial=0.0))))
    return tuple(sorted(found, key=lambda mistake: -mistake.probability))
