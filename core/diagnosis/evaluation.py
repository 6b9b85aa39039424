"""How right a model is on photos whose classes are known: of a folder or manifest, by place, and on field photos."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from core.config import RunConfig
from core.data.cache import PhotoCache, open_cache
from core.data.dataset import SPLIT_NAMES, Dataset, describe_skipped, reasons
from core.data.field_photos import open_field, scan_field
from core.data.manifest import SETTING
from core.data.source import open_photos
from core.data.split_file import read_split
from core.diagnosis.coverage_result import CoverageResult, measure_coverage
from core.diagnosis.learned_photos import Overlap, describe_overlap, measure_overlap
from core.diagnosis.metrics import Metrics, compute_metrics
from core.diagnosis.model_file import ModelFile, check_classes
from core.diagnosis.prediction import Prediction, Predictor, choose_device
from core.diagnosis.subsets import Subset, compare_with_field, subsets_by_setting
from core.errors import DataError
from core.ops.contract import Array

BATCH: Final = 32


@final
@dataclass(frozen=True, slots=True)
class Mistake:
    """A photo that was named wrong, with the probability of what was said."""

    path: str
    label: str
    said: str
    probability: float


@final
@dataclass(frozen=True, slots=True)
class Evaluation:
    """A set of photos judged, by place where that is known, the user's own field photos, the slider's effect, and what
    was named wrong, the surest first.

    overlap: how many of these photos, and of the field photos, the model has learned from; None where its file does not
    say; known: the same in sentences. fresh: the figures on the photos among them that it has not learned from, where
    it has from others.
    """

    figures: Metrics
    parts: tuple[Subset, ...] = ()
    field: Metrics | None = None
    answered: CoverageResult | None = None
    mistakes: tuple[Mistake, ...] = ()
    overlap: tuple[Overlap, ...] | None = None
    known: tuple[str, ...] = ()
    fresh: Metrics | None = None


def evaluate_model(
    model: ModelFile, config: RunConfig, split: str, coverage: float | None = None
) -> tuple[Evaluation, tuple[str, ...]]:
    """Figures on the photos that `config` names (of one split where given), and what was left out, in words.

    The split is that of the file `config.split`, else the source's own. Classes are matched by name. Raises
    DataError where the photos have classes that the model does not know.
    """
    scanned = scan_field(config.field, config.label) if config.field else None
    dataset, cache, kept = _open_split(config, split, model.source_side)
    check_classes(model, [dataset.classes[i] for i in np.unique(dataset.labels[kept])])
    places = np.array([model.classes.index(name) if name in model.classes else -1 for name in dataset.classes])
    own = None
    if scanned is not None:
        own = open_field(scanned, model.classes, model.source_side, folder=config.cache, threads=config.threads)
    settings = dataset.columns.get(SETTING)
    skipped = (describe_skipped(cache.skipped),) if cache.skipped else ()
    with closing(Predictor(model, device=choose_device(config.device), batch=BATCH, threads=config.threads)) as made:
        labels = places[dataset.labels[kept]]
        answers = _answers(made, cache.photos, cache.slots[kept])
        figures, right = _judge(answers, labels, model)
        judging, fresh = [("judged", cache.content[kept])], _judge_fresh(answers, labels, cache.content[kept], model)
        parts: tuple[Subset, ...] = ()
        if settings is not None:
            parts = subsets_by_setting(right, labels, model.classes, [settings[i] for i in kept])
        field = None
        if own is not None:
            field, _ = _judge(_answers(made, own.cache.photos, own.slots), own.labels, model)
            judging.append(("field", own.cache.content[own.cache.kept]))
        parts = compare_with_field(parts, "these photos", figures, field)
        answered = None
        if coverage is not None:
            words = [made.decide(answer, coverage).word for answer in answers]
            answered = measure_coverage(words, labels, right, model.classes, coverage)
    mistakes = _mistakes(answers, dataset, kept[~right], np.flatnonzero(~right), model)
    judged = Evaluation(
        figures, parts, field, answered, mistakes, measure_overlap(model.learned, judging),
        describe_overlap("The model", model.learned, judging), fresh,
    )  # fmt: skip
    return judged, (*skipped, *(own.warnings if own else ()))


def _judge_fresh(answers: Sequence[Prediction], labels: Array, content: Array, model: ModelFile) -> Metrics | None:
    """Figures on the photos that the model has not learned from; None where that is all of them or none."""
    if model.learned is None:
        return None
    rows = np.flatnonzero(~model.learned.knows(content)).tolist()
    return _judge([answers[row] for row in rows], labels[rows], model)[0] if 0 < len(rows) < len(labels) else None


def _open_split(config: RunConfig, split: str, side: int) -> tuple[Dataset, PhotoCache, Array]:
    """The photos that `config` names, and which of them are judged. Raises DataError where none is left."""
    dataset = open_photos(config.data, config.label, config.where)
    if split and not config.split:
        dataset = dataset.take(dataset.rows(SPLIT_NAMES[split]))
    cache = open_cache(dataset, side, folder=config.cache, threads=config.threads)
    kept = cache.kept
    if split and config.split:
        kept = np.flatnonzero(read_split(Path(config.split), dataset, cache) == SPLIT_NAMES[split])
    if not len(kept):
        reason = f" ({reasons(cache.skipped)})" if cache.skipped else ""
        raise DataError(f"There are no {split + ' ' if split else ''}photos in {config.data} to judge by{reason}.")
    return dataset, cache, kept


def _answers(predictor: Predictor, photos: Array, slots: Array) -> list[Prediction]:
    return [answer for first in range(0, len(slots), BATCH)
            for answer in predictor.predict_calibrated(photos[slots[first : first + BATCH]])]  # fmt: skip


def _mistakes(
    answers: Sequence[Prediction], dataset: Dataset, rows: Array, places: Array, model: ModelFile
) -> tuple[Mistake, ...]:
    """rows: of the dataset, places: of the answers, both of the photos that were named wrong."""
    found = []
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        said = int(answers[place].probabilities.argmax())
        found.append(Mistake(dataset.path(row), dataset.label(row), model.classes[said],
                             float(answers[place].probabilities[said])))  # fmt: skip
    return tuple(sorted(found, key=lambda mistake: -mistake.probability))


def _judge(answers: Sequence[Prediction], labels: Array, model: ModelFile) -> tuple[Metrics, Array]:
    """Figures, and which photos are right, bool ``(N,)``."""
    logits = np.log(np.stack([answer.probabilities for answer in answers]) + 1e-300)
    return compute_metrics(logits, labels, model.classes), np.asarray(logits.argmax(axis=1) == labels)
