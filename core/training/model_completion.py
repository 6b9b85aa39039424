"""Completes the model of a run after the last epoch: calibration, thresholds, background tests."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from typing import Final

import numpy as np

from core.data.baseline import Baseline, measure_baseline
from core.data.dataset import TRAIN, VALIDATION, IsCancelled
from core.data.preparation import PhotoSet, ReportStage
from core.diagnosis.completion import PER_CLASS, LabelledPhotos, complete_model, sample_per_class
from core.diagnosis.model_file import ModelFile
from core.training.commands import Commands
from core.training.events import Progress
from core.training.run_evaluation import evaluated_rows
from core.training.setup import Setup
from core.training.threaded_job import ThreadedJob

LEAST_PHOTOS: Final = 30
"""Fewest validation photos for a temperature and thresholds."""
MOST_BYTES: Final = 512 << 20
"""Most bytes of photos in memory; larger sets are sampled evenly from the classes."""


def measure_border(setup: Setup) -> Generator[Progress, None, Baseline | None]:
    """The border baseline of the evaluated photos; None if the settings exclude the background tests."""
    if not setup.config.leaf_tests:
        return None
    photos = setup.photos
    yield Progress("border", 0, 0)
    return measure_baseline(
        photos.cache, photos.dataset.labels, photos.rows(TRAIN), evaluated_rows(setup), setup.config.seed
    )


def share_best(
    setup: Setup, model: ModelFile | None = None, baseline: Baseline | None = None
) -> tuple[ModelFile, Baseline | None]:
    """The best model and the baseline, which rank 0 gives, on every rank."""
    communicator = setup.communicator
    weights = communicator.broadcast_arrays({} if model is None else model.weights)
    given = {"sections": model and dict(model.sections), "baseline": baseline and asdict(baseline)}
    first = communicator.gather_values(given)[0]
    if model is None:
        multilabel = setup.photos.sets is not None
        model = ModelFile(setup.graph_in_use, weights, setup.classes, setup.photos.cache.side,
                          sections=first["sections"], multilabel=multilabel)  # fmt: skip
    return model, first["baseline"] and Baseline(**first["baseline"])


def complete_trained_model(
    setup: Setup, model: ModelFile, baseline: Baseline | None
) -> Generator[Progress, None, ModelFile]:
    """Complete the model with `complete_model`; unchanged if there are too few validation photos. All ranks call it."""
    if len(setup.validation.labels) < LEAST_PHOTOS:
        return model
    seed, threads, device = setup.config.seed, setup.config.threads, setup.device
    train, validation = _take_some(setup.photos, seed), _take(setup.photos, VALIDATION)

    def work(report: ReportStage, cancelled: IsCancelled) -> ModelFile:
        return complete_model(
            model, train, validation, device=device, threads=threads, seed=seed, report=report, baseline=baseline,
            leaf_tests=setup.config.leaf_tests, communicator=setup.communicator,
        )

    if device == "cuda":  # a CUDA context belongs to the thread that made it
        yield Progress("calibration", 0, 0)
        return work(lambda stage, done, total: None, lambda: False)
    return (yield from ThreadedJob(work, Commands()).wait())


def _take_some(photos: PhotoSet, seed: int) -> LabelledPhotos:
    """The training photos for the feature statistics."""
    rows = photos.rows(TRAIN)
    rows = rows[sample_per_class(photos.dataset.labels[rows], PER_CLASS, seed)]
    return LabelledPhotos(photos.cache.gather(rows), np.asarray(photos.dataset.labels[rows]), photos.sets)


def _take(photos: PhotoSet, split: int) -> LabelledPhotos:
    """The photos of a split, sampled by class if they do not fit in MOST_BYTES."""
    rows = photos.rows(split)
    labels = photos.dataset.labels[rows]
    most = MOST_BYTES // photos.cache.side**2 // 3
    if len(rows) > most:
        chosen = sample_per_class(labels, max(most // len(photos.dataset.classes), 1), 0)
        rows, labels = rows[chosen], labels[chosen]
    return LabelledPhotos(photos.cache.gather(rows), np.asarray(labels), photos.sets)
