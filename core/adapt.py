"""``leafclinic adapt MODEL --data PLACE --out MINE``: a model for one place, from about ten photos of each class."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.command_line import add_settings, check_folder, merge_settings, read_arguments, read_settings, run_command
from core.config import RunConfig
from core.data.preparation import PhotoSet, prepare_photos
from core.diagnosis.adaptation import PlacePhotos, adapt_model, check_model
from core.diagnosis.completion import compute_outputs
from core.diagnosis.features import feature_node
from core.diagnosis.head_fitting import Samples
from core.diagnosis.model_card import DATA, TEST
from core.diagnosis.model_file import ModelFile, check_classes, read_model, write_model
from core.diagnosis.model_identity import MODEL_HELP, default_name, today, unnamed
from core.diagnosis.prediction import Predictor, choose_device
from core.diagnosis.training_photos import record_photos
from core.errors import EXIT_CODES, EXIT_DONE, EXIT_FAILED, ModelFileError, Problem
from core.text import printable

BATCH = 16
OLD_SECTIONS = (TEST, "calibration", "reading_leaf")
"""Sections measured with the old head."""


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(adapt, argv)


def adapt(argv: Sequence[str]) -> int:
    arguments, found = read_arguments(make_parser(), argv)
    if "data" not in arguments:
        found.append(Problem("data", "is missing. Give a folder of photos or a CSV manifest."))
    check_folder("out", arguments.out, found, [getattr(arguments, "data", "")])
    config = merge_settings(read_settings(arguments, found), {}, found)
    model = read_model(Path(arguments.model_file))
    name = model.name or unnamed(Path(arguments.model_file))
    config = replace(config, image_size=model.source_side, use_size=0)
    if model.multilabel:
        raise ModelFileError("A model for several labels per photo cannot be adapted. Train it further with --from.")
    check_model(model)
    photos = prepare_photos(replace(config, labels="single"), check=lambda classes, _: check_classes(model, classes))
    place = read_place(model, photos, config)
    samples = place.samples
    check_model(model, place)
    print("Adapting takes about two minutes on two processor cores.", flush=True)
    result = adapt_model(model, place, device=choose_device(config.device), threads=config.threads)
    print(printable(f"{len(samples.labels)} photos of {len(np.unique(samples.labels))} classes in "
                    f"{len(np.unique(samples.groups))} groups. {result.describe()}"))  # fmt: skip
    if result.model is None:
        print("No change of the model predicts held-out photos of this place better. Nothing was written.")
        return EXIT_FAILED
    own = config.name or f"{name}, {default_name(config.data)}"
    write_model(Path(arguments.out), describe_place(result.model, photos, own))
    print(f"Model: {arguments.out}")
    return EXIT_DONE


def read_place(model: ModelFile, photos: PhotoSet, config: RunConfig) -> PlacePhotos:
    """The usable photos with their features, labels, groups and logits."""
    node, kept = feature_node(model.graph), photos.cache.kept
    outputs = (node,) if node else ()
    device, pixels = choose_device(config.device), photos.cache.gather(kept)
    with closing(Predictor(model, device=device, batch=BATCH, threads=config.threads, outputs=outputs)) as predictor:
        seen = compute_outputs(predictor, pixels, node)
    labels = np.array([model.classes.index(name) for name in photos.dataset.classes])[photos.dataset.labels[kept]]
    features = np.zeros((len(kept), 0)) if seen.features is None else seen.features
    return PlacePhotos(pixels, Samples(features, labels, photos.groups[kept]), seen.logits)


def describe_place(model: ModelFile, photos: PhotoSet, name: str) -> ModelFile:
    """The adapted model with name and new photos, without the figures of the original."""
    data = model.sections.get(DATA, {})
    source = f"The model was adapted to {len(photos.cache.kept)} photos of one place on {today()}."
    sections = {key: value for key, value in model.sections.items() if key not in OLD_SECTIONS}
    sections[DATA] = {**data, "sources": [*data.get("sources", ()), source]}
    figures = {key: value for key, value in model.figures.items() if not key.startswith(("test_", "validation_"))}
    learned = record_photos(photos.cache.content[photos.cache.kept], [model.learned])
    return replace(model, sections=sections, figures=figures, learned=learned, name=name, date=today())


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leafclinic adapt", allow_abbrev=False,
        description="Adapt a model to a place from 5 to 20 photos of each class that occurs there. The model keeps its "
        "other classes. Before and after are measured on held-out photos of the place.",
        epilog=f"Class names are those of the model, such as apple/scab for photos in PLACE/apple/scab. {EXIT_CODES}.",
    )  # fmt: skip
    parser.add_argument("model_file", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--out", metavar="OUT.safetensors", required=True, help="file to write")
    add_settings(parser, only=("data", "where", "label", "cache", "name", "device", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
