"""``leafclinic adapt MODEL --data PLACE --out MINE``: a model for one place, from about ten photos of each class."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from core.command_line import add_settings, as_command, check_folder, merge_settings, read_arguments, read_settings
from core.config import RunConfig
from core.data.dataset import Dataset, ReportStage, describe_skipped, ignore
from core.data.near_duplicates import describe_conflicts, find_conflicts
from core.data.preparation import GroupedPhotos, group_photos
from core.data.source import open_dataset
from core.diagnosis import background_dependence
from core.diagnosis.adaptation import Adaptation, PlacePhotos, adapt_model, check_counts, check_model
from core.diagnosis.completion import compute_outputs
from core.diagnosis.features import find_nodes
from core.diagnosis.head_fitting import Samples
from core.diagnosis.model_file import CALIBRATION, DATA, TEST, ModelFile, check_classes, read_model, write_model
from core.diagnosis.model_identity import MODEL_HELP, ORIGIN, adapted_name, read_identity, today
from core.diagnosis.prediction import Predictor
from core.diagnosis.thresholds import without_leaf
from core.diagnosis.training_photos import describe_overlap, measure_overlap, record_photos
from core.errors import EXIT_CODES, EXIT_DONE, EXIT_FAILED, DataError, ModelFileError, Problem
from core.plan import choose_device
from core.text import printable
from core.training.run_folder import list_sources
from core.training.terminal import print_progress

BATCH = 16
OLD_SECTIONS = (TEST, CALIBRATION, background_dependence.SECTION)
"""Sections measured with the old head."""


@as_command
def main(argv: Sequence[str]) -> int:
    arguments, found = read_arguments(make_parser(), argv)
    if "data" not in arguments:
        found.append(Problem("data", "is missing. Give a folder of photos or a CSV manifest."))
    check_folder("out", arguments.out, found, list_sources(arguments.model_file, vars(arguments)), needed=True)
    config = merge_settings(read_settings(arguments, found), {}, found)
    photos, result, told = adapt_to_place(Path(arguments.model_file), config, Path(arguments.out), print_progress)
    print(printable(f"{len(photos.labels)} photos of {len(np.unique(photos.labels))} classes "
                    f"(groups: {len(np.unique(photos.groups))}). {' '.join(told)}"))  # fmt: skip
    if result.model is None:
        return EXIT_FAILED
    print(f"Model: {arguments.out}")
    return EXIT_DONE


def read_adaptable(path: Path) -> ModelFile:
    """A model that can be adapted, as far as known without photos. Raises InputError and ModelFileError."""
    model = read_model(path)
    if model.multilabel:
        raise ModelFileError("A model for several labels per photo cannot be adapted. Train it further with --from.")
    check_model(model)
    return model


def open_place(model: ModelFile, config: RunConfig, report: ReportStage = ignore) -> Dataset:
    """The photos of a place. Raises DataError if the model cannot be adapted to them, as far as known from a list."""
    try:
        dataset = open_dataset(config, partial(report, "scan"))
        check_classes(model, dataset.classes)
    except DataError:
        folder = Path(os.path.abspath(config.data))  # without ".."
        for above in folder.parents[:2] if folder.is_dir() else ():
            inside = folder.relative_to(above).as_posix()
            if any(f"{name}/".startswith(f"{inside}/") for name in model.classes):
                raise DataError(f"The photos in {folder} are of one class or crop. Choose the folder that contains "
                                f"it: {above}.") from None  # fmt: skip
        raise
    check_counts(dataset.classes, dataset.labels, np.arange(len(dataset)))
    return dataset


def adapt_to_place(
    model_file: Path, config: RunConfig, out: Path, report: ReportStage = ignore
) -> tuple[Samples, Adaptation, list[str]]:
    """Adapt a model to the photos of `config.data`; written to `out`, outside their folder, only if it is better there.

    Also returns the photos' features, labels and groups, and the sentences of the adaptation, from the third on those
    on photos that are excluded or were trained on, if any. Raises DataError, InputError or StorageError.
    """
    model, origin = read_adaptable(model_file), read_identity(model_file).name
    name = config.name or adapted_name(origin, config.data)
    config = replace(config, image_size=model.source_side, use_size=0, labels="single")
    photos = group_photos(open_place(model, config, report), config, report)
    place = read_place(model, photos, config, report)
    result = adapt_model(model, place, device=choose_device(config.device), threads=config.threads, report=report)
    if result.model is not None:
        write_model(out, describe_place(result.model, photos, name, origin))
    told = list(result.describe())
    overlap = measure_overlap(model.learned, [("evaluated", photos.cache.content[photos.cache.kept])])
    if overlap and overlap[0].learned:
        told[2:2] = describe_overlap("The model", model.learned, overlap)
    conflicts = find_conflicts(photos.labels, photos.cache, photos.copies)
    bare = without_leaf(place.logits.argmax(axis=1), model.classes).sum()
    doubt = f"The model sees no leaf in {bare} of {len(place.logits)} photos. Check what they show." if bare else ""
    skipped = describe_skipped(photos.cache.skipped)
    told[2:2] = filter(None, (skipped, describe_conflicts(photos.dataset, conflicts), doubt))
    return place.samples, result, told


def read_place(model: ModelFile, photos: GroupedPhotos, config: RunConfig, report: ReportStage) -> PlacePhotos:
    """The usable photos with their features, labels, groups and logits."""
    kept, outputs = photos.cache.kept, find_nodes(model.graph).names
    device, pixels = choose_device(config.device), photos.cache.gather(kept)
    report("compile", 0, 0)
    with closing(Predictor(model, device=device, batch=BATCH, threads=config.threads, outputs=outputs)) as predictor:
        seen = compute_outputs(predictor, pixels, report, "review")
    features = np.zeros((len(kept), 0)) if seen.features is None else seen.features
    labels = photos.dataset.labels_among(model.classes, model.multilabel)[kept]
    samples = Samples(features, labels, photos.groups[kept])
    return PlacePhotos(pixels, samples, seen.logits, seen.spreads)


def describe_place(model: ModelFile, photos: GroupedPhotos, name: str, origin: str) -> ModelFile:
    """The adapted model with name and new photos, without the figures of the original, which is named `origin`."""
    data = model.sections.get(DATA, {})
    source = f"The model was adapted to {len(photos.cache.kept)} photos of one place on {today()}."
    sections = {key: value for key, value in model.sections.items() if key not in OLD_SECTIONS}
    sections |= {DATA: {**data, "sources": [*data.get("sources", ()), source]}, ORIGIN: {"name": origin}}
    figures = {key: value for key, value in model.figures.items() if not key.startswith(("test_", "validation_"))}
    learned = record_photos(photos.cache.content[photos.cache.kept], [model.learned])
    return replace(model, sections=sections, figures=figures, learned=learned, name=name, date=today())


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leafclinic adapt", allow_abbrev=False,
        description="Adapt a model to a place from 5 to 20 photos of each class that occurs there. The model keeps its "
        "other classes. Before and after are measured on held-out photos of the place. This takes a few minutes.",
        epilog=f"Class names are those of the model, such as apple/scab for photos in PLACE/apple/scab. {EXIT_CODES}.",
    )  # fmt: skip
    parser.add_argument("model_file", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--out", metavar="OUT.safetensors", default="", help="file to write")
    add_settings(parser, only=("data", "where", "label", "cache", "name", "device", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
