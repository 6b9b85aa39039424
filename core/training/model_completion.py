"""Completes the model of a run after the last epoch: calibration, thresholds, background tests."""

from __future__ import annotations

from collections.abc import Generator
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


def complete_trained_model(
    setup: Setup, model: ModelFile, baseline: Baseline | None
) -> Generator[Progress, None, ModelFile]:
    """Complete the model with `complete_model`; unchanged if there are too few validation photos."""
    if len(setup.validation.labels) < LEAST_PHOTOS:
        return model
    seed, threads, device = setup.config.seed, setup.config.threads, setup.device
    train, validation = _take_some(setup.photos, seed), _take(setup.photos, VALIDATION)

    def work(report: ReportStage, cancelled: IsCancelled) -> ModelFile:
        return complete_model(
            model, train, validation, device=device, threads=threads, seed=seed, report=report, baseline=baseline,
            leaf_tests=setup.config.leaf_tests,
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
