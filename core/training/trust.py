"""After the last epoch: what makes a trained network trustworthy, measured and told in the report."""

from __future__ import annotations

from collections.abc import Generator
from html import escape
from typing import Any, Final

import numpy as np

from core.data.dataset import TRAIN, VALIDATION, IsCancelled
from core.data.preparation import PhotoSet, ReportStage
from core.diagnosis import background
from core.diagnosis.background import ReadingLeaf
from core.diagnosis.completion import CALIBRATION, Labelled, complete_model, some_per_class
from core.diagnosis.model_file import ModelFile
from core.training.chart import Series, draw_lines
from core.training.commands import Commands
from core.training.events import Progress
from core.training.relay import Relay
from core.training.report import Section
from core.training.setup import Setup

LEAST_PHOTOS: Final = 30
"""Validation photos below which neither a temperature nor a threshold means anything."""
MOST_BYTES: Final = 512 << 20
"""Photos that are held in memory at once; of larger sets so many of each class are taken."""


def complete(setup: Setup, model: ModelFile) -> Generator[Progress, None, ModelFile]:
    """The model with temperature, thresholds and the tests of the background, where there are photos enough."""
    if len(setup.validation.labels) < LEAST_PHOTOS:
        return model
    train, validation = _take(setup.photos, TRAIN), _take(setup.photos, VALIDATION)
    seed, threads, device = setup.config.seed, setup.config.threads, setup.device

    def work(report: ReportStage, cancelled: IsCancelled) -> ModelFile:
        return complete_model(
            model, train, validation, device=device, threads=threads, seed=seed, report=report
        )

    if device == "cuda":  # a CUDA context belongs to the thread that made it
        yield Progress("calibration", 0, 0)
        return work(lambda stage, done, total: None, lambda: False)
    return (yield from Relay(work, Commands()).wait())


def describe_trust(model: ModelFile) -> tuple[Section, ...]:
    """Parts of the report: whether the leaf is read, and whether stated probabilities hold."""
    sections = []
    if background.SECTION in model.sections:
        reading = ReadingLeaf(**model.sections[background.SECTION])
        text = "".join(f"<p>{escape(sentence)}</p>" for sentence in reading.sentences())
        sections.append(Section("Is it reading the leaf?", text))
    if CALIBRATION in model.sections:
        sections.append(Section("Do the stated probabilities hold?", _calibration(model)))
    return tuple(sections)


def _calibration(model: ModelFile) -> str:
    found: dict[str, Any] = model.sections[CALIBRATION]
    bins = [b for b in found["bins"] if b["photos"]]
    points = tuple((float(b["stated"]), float(b["right"])) for b in bins)
    chart = draw_lines("Stated and true share of right answers",
                       [Series("measured", points), Series("ideal", ((0.0, 0.0), (1.0, 1.0)))], "stated", "right")
    return (
        f"<p>Expected calibration error {100 * float(found['error']):.1f} % on the validation photos, after dividing "
        f"the logits by the temperature {model.temperature:.3f}. On other photos it can be much worse.</p>{chart}"
    )


def _take(photos: PhotoSet, split: int) -> Labelled:
    """Squares and labels of a split, so many of each class as memory allows."""
    rows = photos.rows(split)
    labels = photos.dataset.labels[rows]
    most = MOST_BYTES // photos.cache.side**2 // 3
    if len(rows) > most:
        chosen = some_per_class(labels, max(most // len(photos.dataset.classes), 1), 0)
        rows, labels = rows[chosen], labels[chosen]
    return Labelled(photos.cache.gather(rows), np.asarray(labels))
