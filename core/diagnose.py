"""``leafclinic diagnose MODEL PHOTO...``: diagnoses of photos as text, JSON lines or CSV; of very many photos as a
folder of files (``--out``)."""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from core import command_line
from core.config import RunConfig
from core.cores import usable_cores
from core.data.photo_format import EXTENSIONS
from core.data.photo_reader import prepare
from core.data.source import find_photos
from core.diagnosis import page
from core.diagnosis.batch_report import Entry, picture_side, render_batch
from core.diagnosis.diagnosis_output import COLUMNS, WITH_LEAVES, report_errors, show_photos, show_plants
from core.diagnosis.examination import Examination, Examiner
from core.diagnosis.known_crop import find_crop
from core.diagnosis.model_card import render_card_html
from core.diagnosis.model_file import ModelFile
from core.diagnosis.model_identity import MODEL_HELP, SHIPPED_MODELS, find_model, read_identity
from core.diagnosis.plant import GROUPINGS, diagnose_plants, name_plants
from core.diagnosis.prediction import Diagnosis, Predictor, read_network
from core.diagnosis.report_entry import make_entry, remarks
from core.diagnosis.thresholds import COVERAGE, describe_coverage
from core.diagnosis.verdict import DecisionRule
from core.errors import EXIT_CODES, EXIT_DONE, EXIT_WRONG_INPUT, InputError, LeafClinicError, Problem
from core.plan import choose_device
from core.storage import inside_photos, write_file
from core.training.run_folder import list_sources
from core.training.terminal import describe_seconds

BATCH = 16
PART = 1000
"""Photos per file with --out."""
MOST = 1_000_000
ALONE = ("json", "csv", "examine", "leaves", "report", "group")
"""Options that cannot be combined with --out."""


@command_line.as_command
def main(argv: Sequence[str]) -> int:
    arguments, found = command_line.read_arguments(make_parser(), argv)
    coverage = command_line.read_coverage(arguments.coverage, found) if arguments.coverage else COVERAGE
    shard = check_options(arguments, found)
    config = command_line.merge_settings(command_line.read_settings(arguments, found), {}, found)
    if arguments.merge:
        return merge(Path(arguments.model_file))
    file = Path(arguments.model_file)
    model = read_network(file)
    if file.suffix.lower() == ".onnx" and not model.multilabel:  # labels have thresholds
        sys.stderr.write(f"{file.name} is an ONNX file, used without thresholds: a photo whose most probable class "
                         "is below 50 % is \"not sure\".\n")
    if arguments.out:
        return diagnose_many(arguments, model, config, coverage, shard)
    return diagnose_here(arguments, model, config, coverage)


def diagnose_here(arguments: argparse.Namespace, model: ModelFile, config: RunConfig, coverage: float) -> int:
    """Diagnose photos in this process and print each when it is done, or plants."""
    prepare()
    paths, identity = list(find_photos(arguments.photos)), read_identity(Path(arguments.model_file))
    if arguments.coverage:
        sys.stderr.write(describe_coverage(model.thresholds, coverage))
    engine: dict[str, Any] = {"device": choose_device(config.device), "threads": config.threads, "coverage": coverage,
                              "known_crop": arguments.known_crop}  # fmt: skip
    form = "json" if arguments.json else "csv" if arguments.csv else "text"
    show: Callable[[Iterable[Diagnosis]], int]
    show = partial(show_photos, form=form, model=identity, columns=WITH_LEAVES if arguments.leaves else COLUMNS)
    if by := arguments.group:  # a column of the manifests, where it is no other grouping
        names = name_plants(paths, by) if by in GROUPINGS else list(find_photos(arguments.photos, by))

        def show(found: Iterable[Diagnosis]) -> int:
            rule = DecisionRule(model.classes, model.thresholds, coverage)
            return show_plants(diagnose_plants(report_errors(found), names, rule), form, identity)

    if arguments.examine or arguments.report or arguments.leaves:
        with closing(Examiner(model, **engine)) as examiner:
            view = {"crop": not arguments.no_crop, "leaves": arguments.leaves}
            examined = (examiner.examine_file(path, **view) for path in paths)
            if arguments.report:
                make = partial(make_entry, model=identity, side=picture_side(len(paths)))
                read = report(Path(arguments.report), model, examined, make, show)
            else:
                read = show(diagnosis for diagnosis, _ in examined)
    else:
        with closing(Predictor(model, batch=min(BATCH, len(paths)), **engine)) as predictor:
            read = show(predictor.diagnose(paths))
    return EXIT_DONE if read else EXIT_WRONG_INPUT


def report(
    path: Path, model: ModelFile, examined: Iterable[tuple[Diagnosis, Examination | None]],
    make: Callable[[Diagnosis, Examination | None], Entry], show: Callable[[Iterator[Diagnosis]], int],
) -> int:  # fmt: skip
    """Show the diagnoses and write them as a page, also where nobody reads the output; returns what `show` does."""
    entries: list[Entry] = []

    def keep() -> Iterator[Diagnosis]:
        for diagnosis, examination in examined:
            entries.append(make(diagnosis, examination))
            yield diagnosis

    diagnoses = keep()
    try:
        read = show(diagnoses)
    except OSError as error:
        command_line.mute_unread(error)
        read = 1 + show(diagnoses)
    write_file(path, render_batch(entries, remarks(model), page.heading("Model card") + render_card_html(model)))
    sys.stderr.write(f"Report: {path}\n")
    return read


def check_options(arguments: argparse.Namespace, found: list[Problem]) -> tuple[int, int]:
    """Return the shard; invalid combinations are added to `found`. Raises InputError without a model or photos."""
    if Path(arguments.model_file).suffix.lower() in EXTENSIONS:
        raise InputError(f"{arguments.model_file} is a photo. Name a model before the photos, such as: leafclinic "
                         f"diagnose {next(iter(SHIPPED_MODELS))} {arguments.model_file}")
    if not (arguments.photos or arguments.merge or found):  # an unknown option may have a photo as its value
        raise InputError("No photos were given. Name photo files, folders of photos or CSV manifests.")
    given: set[str] = arguments.given
    sources = [*arguments.photos, *list_sources(arguments.model_file, {})]
    command_line.check_folder("report", arguments.report, found, sources)
    checks = (
        ("csv", arguments.json and arguments.csv, "cannot be combined with --json."),
        ("merge", arguments.merge and given - {"merge", "model_file"},
         "joins a folder of results and takes nothing else: diagnose --merge RESULTS"),
        ("no_crop", arguments.no_crop and not (arguments.examine or arguments.report or arguments.leaves),
         "needs --examine, --leaves or --report."),
        ("group", arguments.group and arguments.report, "cannot be combined with --report."),
        ("part", not 1 <= arguments.part <= MOST, f"must be from 1 to {MOST:,}."),
        ("workers", arguments.workers < 0, "must be 1 or more."),
        ("workers", arguments.workers and arguments.scheduler,
         "cannot be combined with --scheduler, which has its own."),
    )  # fmt: skip
    found += [Problem(name, problem) for name, wrong, problem in checks if wrong]
    if arguments.out:
        found += [Problem(name, "cannot be combined with --out.") for name in ALONE if name in given]
        if refusal := inside_photos(arguments.out, sources):
            found.append(Problem("out", refusal))
    else:
        found += [Problem(name, "needs --out.") for name in ("workers", "scheduler", "shard", "part") if name in given]
    return read_shard(arguments.shard, found)


def read_shard(text: str, found: list[Problem]) -> tuple[int, int]:
    """Index from 0 and number of shards of "3/8"; a mistake is added to `found`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text or "1/1")
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        found.append(Problem("shard", f"{text!r} is not a shard. Give its number from 1 and how many there are: 3/8."))
    return index - 1, count


def merge(folder: Path) -> int:
    from core.diagnosis.many_photos import MERGED, merge_parts  # needs pyarrow, which is optional

    photos = merge_parts(folder)
    sys.stderr.write(f"{photos:,} photos: {folder / MERGED}.csv and {MERGED}.parquet\n")
    return EXIT_DONE


def diagnose_many(
    arguments: argparse.Namespace, model: ModelFile, config: RunConfig, coverage: float, shard: tuple[int, int]
) -> int:
    """Diagnose photos into a folder of parts, in this process or by workers; existing parts are kept."""
    from core.diagnosis import many_photos  # needs pyarrow, which is optional

    folder, workers = Path(arguments.out).absolute(), arguments.workers
    model_file = find_model(Path(arguments.model_file)).absolute()
    named = [os.path.abspath(name) for name in arguments.photos]
    crop = arguments.known_crop and find_crop(model.classes, arguments.known_crop)
    model_hash = read_identity(model_file).hash
    settings = {"model": model_hash, "coverage": coverage, "part": arguments.part}
    many_photos.open_results(folder, settings | ({"known_crop": crop} if crop else {}))

    def missing() -> Iterator[many_photos.Part]:
        return many_photos.find_missing(folder, many_photos.cut_parts(find_photos(named), arguments.part), *shard)

    threads = config.threads or (max(usable_cores() // workers, 1) if workers else 0)
    job = many_photos.Job(str(model_file), model_hash, str(folder), config.device, threads, coverage, crop)
    shown = Rate(lambda: sum(len(part.paths) for part in missing()))
    if workers or arguments.scheduler:
        done = many_photos.compute_by_workers(job, missing(), sys.stderr.write, workers, arguments.scheduler)
    else:
        done = (many_photos.compute_part(job, part) for part in missing())
    for part in done:
        shown.add(*part)
    sys.stderr.write(f"{shown.describe()}\nResults: {folder}\n")
    return EXIT_DONE


class Rate:
    """Shows photos per second and remaining time on the error stream; count: counts all photos, in a thread."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._begun = time.monotonic()
        self._photos = self._unreadable = self._total = 0
        threading.Thread(target=self._set_total, args=(count,), daemon=True).start()

    def add(self, photos: int, unreadable: int) -> None:
        self._photos, self._unreadable = self._photos + photos, self._unreadable + unreadable
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{self.describe()}\x1b[K")
            sys.stderr.flush()

    def describe(self) -> str:
        if not self._photos:
            return "There was nothing left to diagnose."
        rate = self._photos / max(time.monotonic() - self._begun, 1e-9)
        unreadable = f", {self._unreadable:,} could not be read" if self._unreadable else ""
        left = self._total - self._photos
        later = f" of {self._total:,}; {describe_seconds(left / rate)} left" if left > 0 else ""
        return f"{self._photos:,} photos{unreadable}, {rate:,.0f} photos/s{later}"

    def _set_total(self, count: Callable[[], int]) -> None:
        with suppress(LeafClinicError):  # the diagnosis itself reports it
            self._total = count()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leafclinic diagnose", allow_abbrev=False,
        description="Diagnose photos. Nothing leaves this computer, unless you name a --scheduler.",
        epilog=f"Shipped models: {' '.join(f'{name}: {use}' for name, use in SHIPPED_MODELS.items())} {EXIT_CODES}.",
    )
    parser.add_argument("model_file", metavar="MODEL", help=f"{MODEL_HELP}, or ONNX file")
    parser.add_argument("photos", metavar="PHOTO", nargs="*", help="photo files, folders of photos, or CSV manifests")
    parser.add_argument("--json", action="store_true", help="print one JSON object per photo, one per line")
    parser.add_argument("--csv", action="store_true", help="print a CSV table with one line per photo")
    parser.add_argument("--examine", action="store_true", help="also measure the diseased area; photos are cropped "
                        "to small leaves first")  # fmt: skip
    parser.add_argument("--leaves", action="store_true", help="find the leaves in each photo and diagnose them one by "
                        "one (implies --examine); for photos of several leaves")  # fmt: skip
    parser.add_argument("--no-crop", action="store_true", help="with --examine, --leaves or --report: do not crop "
                        "photos to small leaves")
    parser.add_argument("--report", metavar="OUT.html", default="", help="also write an HTML report with pictures "
                        "(implies --examine): beside photo files, but not in a photo folder")  # fmt: skip
    parser.add_argument("--group", metavar="folder|time|COLUMN", default="",
                        help="diagnose plants instead of photos: photos of one plant are in one folder, were taken "
                        "each within a minute of the one before, or have the same value in this column of a manifest")
    parser.add_argument("--known-crop", metavar="CROP", default="",
                        help="the crop of all these photos, such as apple: other crops' classes are excluded")
    parser.add_argument("--coverage", default="", metavar="SHARE",
                        help="fraction of photos to diagnose, 0..1; lower means higher confidence "
                        f"(default: {COVERAGE})")
    command_line.add_settings(parser, only=("device", "threads"))
    many = parser.add_argument_group("very many photos", "Needs pip install '.[cluster]'.")
    many.add_argument("--out", metavar="RESULTS", default="", help="write Parquet and CSV files into this folder; the "
                      "same command continues where it was interrupted")  # fmt: skip
    many.add_argument("--part", type=int, default=PART, metavar="PHOTOS", help="photos per file (default: %(default)s)")
    many.add_argument("--workers", type=int, default=0, metavar="N", help="diagnose in N processes on this computer, "
                      "which Dask connects on the loopback interface")  # fmt: skip
    many.add_argument("--scheduler", metavar="ADDRESS", default="", help="diagnose by the workers of this Dask "
                      "scheduler, such as tcp://10.0.0.1:8786; they must see model, photos and RESULTS under the same "
                      "paths")  # fmt: skip
    many.add_argument("--shard", metavar="I/N", default="", help="diagnose every Nth part only, from the Ith: one job "
                      "of a job array")  # fmt: skip
    many.add_argument("--merge", action="store_true", help="join the parts: leafclinic diagnose --merge RESULTS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
