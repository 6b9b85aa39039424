"""The end of a run: completes and evaluates the best weights on unseen photos, writes the model file and the report."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from core.data.dataset import TEST, TRAIN, VALIDATION, ReportStage, ignore
from core.data.preparation import PhotoSet
from core.diagnosis.background_dependence import Baseline, measure_baseline
from core.diagnosis.completion import PER_CLASS, LabelledPhotos, complete_model, sample_per_class
from core.diagnosis.metrics import Metrics
from core.diagnosis.model_file import DATA, ModelFile, read_model, write_model
from core.diagnosis.model_identity import BEST, model_name, today
from core.diagnosis.thresholds import SECTION, untested_thresholds
from core.ops.contract import Array
from core.percent import percent
from core.training.checkpoint import RunState
from core.training.commands import Commands, ThreadedJob
from core.training.events import LOG, Progress, RunEvaluated, read_history
from core.training.report import ReportData, render_report
from core.training.run_evaluation import RunEvaluation, evaluate_run, evaluated_rows
from core.training.run_folder import REPORT, SPLIT, RunFolder, log_reading
from core.training.setup import Setup, describe_prevented_leakage

LEAST_PHOTOS: Final = 30
"""Fewest validation photos for a temperature and thresholds."""
MOST_BYTES: Final = 512 << 20
"""Most bytes of photos in memory."""


def save_best(setup: Setup, folder: RunFolder, weights: Mapping[str, Array], figures: Metrics, epoch: int) -> None:
    model = ModelFile(
        graph=setup.graph_in_use, weights=weights, classes=setup.classes, source_side=setup.photos.cache.side,
        data_hash=setup.fingerprint, name=setup.config.name, date=today(), learned=setup.learned,
        multilabel=setup.photos.sets is not None,
        sections={SECTION: untested_thresholds(len(setup.classes)).to_section()} if setup.photos.sets else {},
        figures={
            "epoch": float(epoch + 1), "validation_photos": float(figures.photos),
            "validation_accuracy": figures.accuracy, "validation_loss": figures.loss,
        },
    )  # fmt: skip
    write_model(folder.path / BEST, model)


def finish_run(
    setup: Setup, folder: RunFolder, state: RunState
) -> Generator[Progress | RunEvaluated, None, RunEvaluation]:
    """Complete the best model, evaluate it on unseen photos, and write its file and the report."""
    path, photos, baseline = folder.path / BEST, setup.photos, None
    if setup.config.leaf_tests:
        yield Progress("border", 0, 0)
        rows = photos.rows(TRAIN), evaluated_rows(setup)
        baseline = measure_baseline(photos.cache, photos.dataset.labels, *rows, setup.config.seed)
    model = yield from complete_trained_model(setup, *share_best(setup, read_model(path), baseline))
    evaluation = yield from evaluate_run(setup, model, baseline)
    model = evaluation.write_into(describe_data(setup, model))
    write_model(path, model)
    if evaluation.split == "test":
        log_reading(folder.path, evaluation.result.figures.accuracy)
    if evaluation.result.figures.confusion:
        folder.write_confusion(evaluation.result.figures)
    yield evaluation.to_event()
    folder.sync()
    history = read_history(folder.path / LOG)
    data = ReportData(
        config=setup.config, history=history, evaluation=evaluation, model=model, conditions=setup.conditions,
        seconds=state.seconds, photos=describe_photos(photos, folder.path / SPLIT),
    )
    folder.write(REPORT, render_report(data))
    return evaluation


def assist_finish(setup: Setup) -> Generator[Progress, None, None]:
    yield from complete_trained_model(setup, *share_best(setup))
    setup.validator.assist(setup.evaluated)


def share_best(
    setup: Setup, model: ModelFile | None = None, baseline: Baseline | None = None
) -> tuple[ModelFile, Baseline | None]:
    """Return the best model and the baseline of rank 0 on every rank."""
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
    train, validation = _take_some(setup.photos, seed), _take_validation(setup.photos)

    def work(report: ReportStage) -> ModelFile:
        return complete_model(
            model, train, validation, device=device, threads=threads, seed=seed, report=report, baseline=baseline,
            communicator=setup.communicator,
        )

    if device == "cuda":  # a CUDA context belongs to the thread that made it
        yield Progress("calibration", 0, 0)
        return work(ignore)
    return (yield from ThreadedJob(work, Commands()).wait())


def _take_some(photos: PhotoSet, seed: int) -> LabelledPhotos:
    slots, labels = photos.training
    chosen = sample_per_class(labels, PER_CLASS, seed)
    labels = labels[chosen] if photos.sets is None else photos.true_labels(photos.rows(TRAIN)[chosen])
    return LabelledPhotos(np.take(photos.cache.photos, slots[chosen], axis=0), labels)


def _take_validation(photos: PhotoSet) -> LabelledPhotos:
    """The validation photos, or if they do not fit in MOST_BYTES a random sample, in which classes are as frequent."""
    rows = np.random.default_rng(0).permutation(photos.rows(VALIDATION))
    rows = np.sort(rows[: MOST_BYTES // photos.cache.side**2 // 3])
    return LabelledPhotos(photos.cache.gather(rows), photos.true_labels(rows), photos.groups[rows])


def describe_photos(photos: PhotoSet, file: Path) -> tuple[tuple[str, str], ...]:
    """Rows of the report: numbers of photos, where groups come from, and the hash of the split's file."""
    free = photos.dataset.ungrouped
    by_class = photos.dataset.counts(photos.rows(TRAIN)) | dict.fromkeys(photos.added, len(photos.pictures))
    sizes = (f"{len(photos.rows(split))} {name}" for split, name in enumerate(("training", "validation", "test")))
    likeness = "file names, times and likeness of the photos"
    return (
        ("Photos by split", ", ".join(sizes)),
        ("Training photos by class", ", ".join(f"{name} {count}" for name, count in by_class.items())),
        ("Groups from", likeness if free.all() else f"the manifest, else {likeness}" if free.any() else "the manifest"),
        ("SHA-256 of split.csv", sha256(file.read_bytes()).hexdigest()),
    )


def describe_data(setup: Setup, model: ModelFile) -> ModelFile:
    """The model with the data sources for its card, unless it already has them."""
    photos = setup.photos
    learned, chosen, tested = (len(photos.rows(split)) for split in (TRAIN, VALIDATION, TEST))
    drawn = f" and {len(photos.pictures)} generated pictures without a leaf" if len(photos.pictures) else ""
    sources = [
        f"{learned} training photos of {len(setup.classes) - len(photos.added)} classes{drawn}, {chosen} validation "
        f"photos (to choose the epoch and to calibrate), {tested} test photos. "
        f"Groups of related photos, by which they were split: {len(np.unique(photos.groups[photos.cache.kept]))}.",
        "The photos belong to the user; their licences are unknown.",
    ]
    if photos.leak.leaked:
        sources.append(photos.leak.describe())
    sources += describe_prevented_leakage(photos)
    if setup.config.start:
        start = model_name(Path(setup.config.start))
        sources += [f"Training started from the weights of {start}.", *setup.origin_words]
    if setup.teachers is not None:
        share, names = setup.config.teacher_share, setup.teachers.names
        sources.append(f"Knowledge distillation from {names}: their predictions had weight {percent(share, 0)} in the "
                       "training targets, the labels the rest.")
    return replace(model, sections={DATA: {"sources": sources}, **model.sections})
