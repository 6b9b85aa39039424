"""The end of a run: evaluates the best weights on unseen photos and writes the model file and the report."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from core.data.dataset import TEST, TRAIN, VALIDATION
from core.diagnosis import model_card
from core.diagnosis.metrics import Metrics
from core.diagnosis.model_file import ModelFile, read_model, write_model
from core.diagnosis.model_identity import BEST, model_name, today
from core.diagnosis.thresholds import SECTION, untested_thresholds
from core.ops.contract import Array
from core.percent import percent
from core.training.events import Progress, RunEvaluated
from core.training.history import read_history
from core.training.model_completion import complete_trained_model, measure_border, share_best
from core.training.photo_checks import describe_prevented_leakage
from core.training.report import ReportData, render_report
from core.training.run_evaluation import RunEvaluation, evaluate_run
from core.training.run_folder import EVENTS, REPORT, RunFolder
from core.training.run_state import RunState
from core.training.setup import Setup


@final
@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The results of a finished run."""

    evaluation: RunEvaluation
    model: Path
    report: Path


def save_best(setup: Setup, folder: RunFolder, weights: Mapping[str, Array], figures: Metrics, epoch: int) -> None:
    """Write the model file of the best epoch so far."""
    model = ModelFile(
        graph=setup.graph_in_use,
        weights=weights,
        classes=setup.classes,
        source_side=setup.photos.cache.side,
        data_hash=setup.fingerprint,
        name=setup.config.name,
        date=today(),
        learned=setup.learned,
        multilabel=setup.photos.sets is not None,
        sections={SECTION: untested_thresholds(len(setup.classes)).to_section()} if setup.photos.sets else {},
        figures={
            "epoch": float(epoch + 1), "validation_photos": float(figures.photos),
            "validation_accuracy": figures.accuracy, "validation_loss": figures.loss,
        },
    )
    write_model(folder.path / BEST, model)


def finish_run(
    setup: Setup, folder: RunFolder, state: RunState
) -> Generator[Progress | RunEvaluated, None, FinishedRun]:
    """Complete the best model, evaluate it on unseen photos, and write its file and the report."""
    path = folder.path / BEST
    baseline = yield from measure_border(setup)
    model = yield from complete_trained_model(setup, *share_best(setup, read_model(path), baseline))
    evaluation = yield from evaluate_run(setup, model, baseline)
    model = evaluation.write_into(describe_data(setup, model))
    write_model(path, model)
    folder.write_confusion(evaluation.figures)
    yield evaluation.to_event()
    folder.sync()
    history = read_history(folder.path / EVENTS)
    data = ReportData(
        config=setup.config, history=history, evaluation=evaluation, model=model, conditions=setup.conditions,
        seconds=state.seconds, warnings=tuple(history.warnings),
    )
    return FinishedRun(evaluation, path, folder.write(REPORT, render_report(data)))


def assist_finish(setup: Setup) -> Generator[Progress, None, None]:
    """What the other ranks do meanwhile: their share of the tests."""
    yield from complete_trained_model(setup, *share_best(setup))
    setup.validator.assist(setup.evaluated)


def describe_data(setup: Setup, model: ModelFile) -> ModelFile:
    """The model with the data sources for its card, unless it already has them."""
    photos = setup.photos
    learned, chosen, tested = (len(photos.rows(split)) for split in (TRAIN, VALIDATION, TEST))
    sources = [
        f"{learned} training photos of {len(setup.classes)} classes, {chosen} validation photos (to choose the epoch "
        f"and to calibrate), {tested} test photos. Split by {len(np.unique(photos.groups))} groups of related photos.",
        "The photos belong to the user; their licences are unknown.",
    ]
    if photos.leak.leaked:
        sources.append(f"Data leakage: {photos.leak.leaked} of {photos.leak.held_out} validation and test photos have "
                       "a photo of the same group in training.")
    sources += describe_prevented_leakage(photos)
    if setup.config.start:
        start = model_name(Path(setup.config.start))
        sources += [f"Training started from the weights of {start}.", *setup.origin_words]
    if setup.teachers is not None:
        share, names = setup.config.teacher_share, setup.teachers.names
        sources.append(f"Knowledge distillation from {names}: their predictions had weight {percent(share, 0)} in the "
                       "training targets, the labels the rest.")
    return replace(model, sections={model_card.DATA: {"sources": sources}, **model.sections})
