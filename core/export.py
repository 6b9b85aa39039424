"""``leafclinic export MODEL --onnx OUT.onnx``: a model for other programs, in float32 or in eight bits."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from core.command_line import add_settings, as_command, check_folder, merge_settings, read_arguments, read_settings
from core.config import RunConfig
from core.data.dataset import TRAIN, VALIDATION, ReportStage
from core.data.preparation import PhotoSet, prepare_photos
from core.diagnosis import int8_model
from core.diagnosis.completion import LabelledPhotos
from core.diagnosis.model_file import ModelFile, check_classes, read_model
from core.diagnosis.model_identity import CONFIG, MODEL_HELP
from core.diagnosis.onnx_model import check_onnx, metadata_of, to_onnx
from core.errors import EXIT_CODES, EXIT_DONE, ModelFileError, Problem
from core.onnx import write_quantised_onnx
from core.storage import write_file
from core.text import printable
from core.training.run_folder import SPLIT, list_sources, read_config
from core.training.terminal import print_progress

SELECTING = ("where", "label", "split", "validation", "test", "seed")
"""Options for named photos; a run folder has its own photos and split."""
COMPARED = 32
"""Validation photos on which onnxruntime's 8-bit predictions are compared with the simulation."""
NOT_CHECKED = "Not checked: onnxruntime is not installed here. Install it with: pip install onnxruntime"


def export(argv: Sequence[str], report: ReportStage = print_progress) -> int:
    arguments, found = read_arguments(make_parser(), argv)
    run = Path(arguments.model_file)
    own = "data" not in arguments and (run / CONFIG).is_file()
    check_folder("onnx", arguments.onnx, found, list_sources(arguments.model_file, vars(arguments)), needed=True)
    if not arguments.int8:
        found += [Problem(name, "needs --int8.") for name in ("data", *SELECTING) if name in arguments.given]
    elif own:
        found += [Problem(name, "needs --data.") for name in SELECTING if name in arguments.given]
    elif "data" not in arguments:
        found.append(Problem("int8", "needs photos to measure the activation ranges and the loss of accuracy. Give the "
                                     "photos that the model was trained on with --data."))
    config = merge_settings(read_settings(arguments, found), {}, found)
    if own:
        trained = read_config(run)
        config = replace(trained, cache=config.cache or trained.cache, threads=config.threads, split=str(run / SPLIT))
    model, target = read_model(run), Path(arguments.onnx)
    data = to_onnx(model)
    check = check_onnx(data, model)
    told = [NOT_CHECKED if check is None else f"Checked: onnxruntime {check[0]} computes the same output (largest "
            f"difference {check[1]:.1g})."]  # fmt: skip
    if arguments.int8 and model.multilabel:
        raise ModelFileError("A model for several labels per photo cannot be exported in 8 bits. Remove --int8.")
    if arguments.int8:
        data, more = make_int8(model, config, report)
        told += more
    write_file(target, data)
    told.append(f"Saved to {target}: {'eight bits' if arguments.int8 else 'float32'}, {len(data) / 2 ** 20:.2f} MB, "
                f"{len(model.classes)} classes, {model.size[0]} x {model.size[0]} pixels.")
    print(*dict.fromkeys(told), sep="\n")  # without onnxruntime both checks say the same
    return EXIT_DONE


main = as_command(export)


def make_int8(model: ModelFile, config: RunConfig, report: ReportStage) -> tuple[bytes, list[str]]:
    """The 8-bit file, and sentences about its loss of accuracy, which its metadata store."""
    photos = prepare_photos(replace(config, image_size=model.source_side), report)
    for warning in photos.warnings:
        sys.stderr.write(printable(warning) + "\n")
    train, validation = (labelled(photos, split, model) for split in (TRAIN, VALIDATION))
    quantised = int8_model.quantise_model(
        model, train, seed=config.seed, threads=config.threads, report=partial(report, "ranges")
    )
    loss = int8_model.measure_quantisation_loss(
        quantised, model, validation, threads=config.threads, report=partial(report, "loss")
    )
    lost = {"validation_photos": loss.photos, "float32_accuracy": loss.float32, "int8_accuracy": loss.int8,
            "changed_answers": loss.changed}  # fmt: skip
    more = {**metadata_of(model), "int8": json.dumps(lost)}
    data = write_quantised_onnx(quantised, model.classes, model.temperature, more)
    told = (f"Validation accuracy ({loss.photos} photos): {100 * loss.int8:.2f} % in 8 bits, {100 * loss.float32:.2f} "
            f"% in float32. {100 * (loss.float32 - loss.int8):.2f} points lost, {loss.changed} predictions changed.")
    some = validation.photos[:: max(1, len(validation.photos) // COMPARED)][:COMPARED]
    same = int8_model.agreement(data, quantised, np.asarray(some))
    check = NOT_CHECKED if same is None else (f"Checked: onnxruntime {same[0]} predicts the same class as the 8-bit "
                                              f"model on {same[1]} of {len(some)} photos.")
    return data, [told, check]


def labelled(photos: PhotoSet, split: int, model: ModelFile) -> LabelledPhotos:
    """Photos of a split with the model's class numbers, matched by name. Raises DataError for unknown classes."""
    rows, dataset = photos.rows(split), photos.dataset
    check_classes(model, [dataset.classes[i] for i in np.unique(dataset.labels[rows])])
    return LabelledPhotos(photos.cache.gather(rows), dataset.labels_among(model.classes)[rows])


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leafclinic export", allow_abbrev=False, description="Write a model as ONNX for other programs.",
        epilog="The file contains preprocessing, class names, temperature and thresholds as metadata. Without --data, "
               f"a run folder is quantised with its own photos and split. {EXIT_CODES}.",
    )
    parser.add_argument("model_file", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--onnx", default="", metavar="OUT.onnx", help="file to write")
    parser.add_argument("--int8", action="store_true", help="quantise weights and activations to 8 bits (QDQ)")
    add_settings(parser, only=("data", "where", "label", "split", "validation", "test", "seed", "cache", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
