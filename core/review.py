"""``leafclinic review PHOTOS``: photos whose label is probably wrong, or the photos that are worth labelling next."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from core import command_line
from core.config import RunConfig
from core.data.cache import open_cache
from core.data.dataset import ReportStage, describe_skipped, ignore, reasons
from core.data.manifest import HEADING, file_name, open_manifest, write_manifest
from core.data.photo_reader import prepare
from core.data.preparation import GroupedPhotos, group_photos
from core.data.source import open_dataset, open_unlabelled
from core.diagnosis.head_fitting import Samples
from core.diagnosis.label_review import FEWEST, Review, choose_photos, review_labels
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import MODEL_HELP, SHIPPED_MODELS, find_model
from core.diagnosis.photo_features import read_features
from core.errors import EXIT_CODES, EXIT_DONE, InputError, Problem
from core.percent import rounded
from core.text import as_cell, csv_text, json_line, printable
from core.training.run_folder import list_sources
from core.training.terminal import print_progress

COLUMNS = ("path", "label", "suggested", "probability", "label_probability", "agreeing", "reason")
SHOWN = 100


@dataclass(frozen=True, slots=True, eq=False)
class ReviewedPhotos:
    """Photos to review. samples: of the usable ones; learned: how many of them the model was trained on."""

    photos: GroupedPhotos
    samples: Samples
    model: Path
    learned: int


@command_line.as_command
def main(argv: Sequence[str]) -> int:
    arguments, found = command_line.read_arguments(make_parser(), argv)
    sources = [arguments.photos, arguments.corrections, *list_sources(arguments.model_file, {})]
    command_line.check_folder("out", arguments.out, found, sources, heading=",".join(HEADING))
    if bool(arguments.corrections) != bool(arguments.out):
        found.append(Problem("out" if arguments.out else "corrections", "--corrections and --out need each other."))
    if arguments.json and arguments.csv:
        found.append(Problem("csv", "cannot be combined with --json."))
    if arguments.corrections:
        unused = arguments.given & {"json", "csv", "most", "unlabelled", "choose", "model_file"}
        found += [Problem("--model" if name == "model_file" else name, "cannot be combined with --corrections.")
                  for name in sorted(unused)]  # fmt: skip
    elif ("most" if arguments.unlabelled else "choose") in arguments.given:
        found.append(Problem("choose", "is for --unlabelled, --most for a review without it."))
    found += [Problem(name, "must be 1 or more.") for name in ("choose", "most") if getattr(arguments, name) < 1]
    settings = command_line.read_settings(arguments, found) | {"data": arguments.photos}
    config = command_line.merge_settings(settings, {}, found)
    if arguments.corrections:
        return correct(config, Path(arguments.corrections), Path(arguments.out))
    prepare()
    photos = read_photos(config, Path(arguments.model_file), print_progress)
    if arguments.unlabelled:
        chosen = choose_unlabelled(photos, config, arguments.unlabelled, arguments.choose, print_progress)
        show(("path",), [((path,), path) for path in chosen], arguments)
        return EXIT_DONE
    result = review_labels(photos.samples, len(photos.photos.dataset.classes))
    show_suspects(photos, result, arguments)
    return EXIT_DONE


def read_photos(config: RunConfig, model: Path, report: ReportStage = ignore) -> ReviewedPhotos:
    """Decode and group the photos of `config.data`, and compute their features. Raises DataError."""
    path = find_model(model)
    model_file = read_model(path)
    side = model_file.source_side
    dataset = open_dataset(config, partial(report, "scan"))
    photos = group_photos(dataset, replace(config, image_size=side, use_size=0), report)
    rows = photos.cache.kept
    features = read_features(path, photos.cache, rows, config.device, config.threads, report)
    samples = Samples(features, photos.labels[rows], photos.groups[rows])
    learned = int(model_file.learned.knows(photos.cache.content[rows]).sum()) if model_file.learned else 0
    return ReviewedPhotos(photos, samples, path, learned)


def show_suspects(photos: ReviewedPhotos, result: Review, arguments: argparse.Namespace) -> None:
    dataset, rows = photos.photos.dataset, photos.photos.cache.kept
    classes, several = dataset.classes, len(np.unique(photos.samples.labels))
    few = f" Classes with fewer than {FEWEST} groups are not reviewed: {', '.join(classes[c] for c in result.few)}."
    excluded = describe_skipped(photos.photos.cache.skipped)
    learned = f" {photos.model.name} was trained on {photos.learned} of the photos: fewer wrong labels are found there."
    sys.stderr.write(printable(
        f"{len(rows)} photos of {several} classes (groups: {len(np.unique(photos.samples.groups))}). "
        f"{rounded(result.agreement)} % are predicted as labelled by last layers that were not fitted to them. "
        f"Suspicious labels: {len(result.suspects)}.{few if result.few else ''}{learned if photos.learned else ''} "
        f"{excluded}".rstrip())
        + "\n")  # fmt: skip
    lines = []
    for suspect in result.suspects[: arguments.most]:
        row = int(rows[suspect.row])
        path, reason = dataset.paths[row], replace(suspect, label=int(dataset.labels[row])).describe(classes)
        values = (path, dataset.label(row), classes[suspect.suggested], round(suspect.probability, 4),
                  round(suspect.confidence, 4), suspect.agreeing, reason)  # fmt: skip
        lines.append((values, f"{path}: {reason}"))
    show(COLUMNS, lines, arguments)


def choose_unlabelled(
    photos: ReviewedPhotos, config: RunConfig, folder: str, count: int, report: ReportStage = ignore
) -> list[str]:
    """Photos of a folder that are worth labelling next, the most informative first. Raises InputError."""
    if not os.path.exists(folder):
        raise InputError(f"{folder} does not exist. Check the name, or connect the disk it is on.")
    pool = open_unlabelled(folder)
    labelled = photos.photos
    cache = open_cache(pool, labelled.cache.side, folder=config.cache, threads=config.threads,
                       progress=partial(report, "cache"))  # fmt: skip
    if not len(cache.kept):
        raise InputError(f"None of the {len(pool)} photos can be used: {reasons(cache.skipped)}.")
    known = {content.tobytes() for content in labelled.cache.content[labelled.cache.kept]}
    rows = np.array([row for row in cache.kept.tolist() if cache.content[row].tobytes() not in known], np.int64)
    if not len(rows):
        raise InputError(f"All photos in {folder} are among those with labels. Choose a folder of other photos.")
    features = read_features(photos.model, cache, rows, config.device, config.threads, report)
    chosen = choose_photos(photos.samples, features, len(labelled.dataset.classes), count, config.seed)
    return [pool.path(row) for row in rows[chosen].tolist()]


def show(columns: Sequence[str], lines: Sequence[tuple[Sequence[object], str]], arguments: argparse.Namespace) -> None:
    if arguments.csv:
        sys.stdout.write(csv_text([columns, *(values for values, _ in lines)]))
        return
    for values, text in lines:
        print(json_line(dict(zip(columns, values, strict=True))) if arguments.json else printable(text))


def correct(config: RunConfig, corrections: Path, out: Path) -> int:
    dataset = open_dataset(config)
    table = open_manifest(corrections, label="label", empty=True)

    def key(path: str) -> str:  # as it is printed, with escapes where it is no UTF-8, and read again
        return file_name(str(as_cell(path)).encode("utf-8", "backslashreplace").decode(), corrections)

    at = {key(path): row for row, path in enumerate(dataset.paths)}
    rows = [at.get(key(path), -1) for path in table.paths]
    plain = {str(as_cell(name)): name for name in dataset.classes}
    if unknown := [path for path, row in zip(table.paths, rows, strict=True) if row < 0]:
        raise InputError(f"{corrections} names {len(unknown)} photos that are not among the photos, such as "
                         f"{unknown[0]}.")  # fmt: skip
    names = [plain.get(name, name) for name in table.classes]
    classes = (*dataset.classes, *(name for name in names if name not in dataset.classes))
    labels = dataset.labels.copy()
    labels[rows] = np.array([classes.index(name) for name in names])[table.labels]
    write_manifest(out, dataset, classes, labels, np.arange(len(dataset)))
    print(f"Labels changed: {(labels != dataset.labels).sum()}. Manifest: {out}")
    return EXIT_DONE


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leafclinic review", allow_abbrev=False,
        description="List photos whose label is probably wrong, most suspicious first: the features of a model, "
        "predictions by cross-validation, and confident learning. Nothing is written into the photo folder.",
        epilog="To correct labels, edit the column `label` of the CSV table; --corrections applies it. "
        f"{EXIT_CODES}.",
    )  # fmt: skip
    parser.add_argument("photos", metavar="PHOTOS", help="folder of photos, or CSV manifest")
    parser.add_argument("--model", dest="model_file", metavar="MODEL", default=next(iter(SHIPPED_MODELS)),
                        help=f"{MODEL_HELP} (default: %(default)s)")
    parser.add_argument("--most", type=int, default=SHOWN, metavar="N", help="photos to list (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per photo, one per line")
    parser.add_argument("--csv", action="store_true", help="print a CSV table with one line per photo")
    parser.add_argument("--unlabelled", metavar="FOLDER", default="", help="instead list photos of this folder that "
                        "are worth labelling next: uncertain and diverse")  # fmt: skip
    parser.add_argument("--choose", type=int, default=20, metavar="N",
                        help="with --unlabelled: photos to choose (default: %(default)s)")
    parser.add_argument("--corrections", metavar="TABLE.csv", default="",
                        help="apply the column label of this table, and write all photos as a manifest to --out")
    parser.add_argument("--out", metavar="OUT.csv", default="", help="manifest to write, for leafclinic train --data")
    command_line.add_settings(parser, only=("where", "label", "cache", "device", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
