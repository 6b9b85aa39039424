"""``leafclinic diagnose MODEL PHOTO...``: the likeliest classes of each photo, as text, JSON lines or CSV."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from core.command_line import (
    add_settings,
    check_folder,
    merge_settings,
    read_arguments,
    read_coverage,
    read_settings,
    run_command,
    tell_json,
)
from core.data.file_extensions import NAMED
from core.data.photo_reader import prepare
from core.diagnosis import page
from core.diagnosis.batch_report import Entry, picture_side, render_batch
from core.diagnosis.examination import Examination, Examiner
from core.diagnosis.model_card import render_card_html
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import MODEL_HELP, SHIPPED_MODELS, ModelIdentity, as_fields, read_identity
from core.diagnosis.plant import GROUPINGS, diagnose_plants, group_photos
from core.diagnosis.plant_output import report_errors, show_plants
from core.diagnosis.prediction import TOP, Diagnosis, Predictor, choose_device
from core.diagnosis.report_entry import make_entry, remarks
from core.diagnosis.verdict import COVERAGE, SECTION, Thresholds, describe_slider
from core.errors import EXIT_CODES, EXIT_DONE, EXIT_WRONG_INPUT, DataError, Problem
from core.percent import SPACE, stated
from core.storage import write_file
from core.text import csv_text, json_line, printable

BATCH = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done (also where some photos could not be read), 2 wrong input, 130 stopped by Ctrl-C, 1 else."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command(lambda: diagnose(argv), tell_json if "--json" in argv else None)


def diagnose(argv: Sequence[str]) -> int:
    arguments, found = read_arguments(make_parser(), argv)
    coverage = read_coverage(arguments.coverage, found) if arguments.coverage else COVERAGE
    check_folder("report", arguments.report, found)
    if arguments.json and arguments.csv:
        found.append(Problem("csv", "cannot be combined with --json."))
    if arguments.group and (arguments.examine or arguments.report):
        found.append(Problem("group", "cannot be combined with --examine or --report."))
    config = merge_settings(read_settings(arguments, found), {}, found)
    paths = list(find_photos(arguments.photos))
    prepare()
    model, identity = read_model(Path(arguments.model_file)), read_identity(Path(arguments.model_file))
    if arguments.coverage:
        sys.stderr.write(describe_slider(model.sections.get(SECTION, {}), len(model.classes), coverage))
    device = choose_device(config.device)
    show = show_json if arguments.json else show_csv if arguments.csv else show_text
    entries: list[Entry] = []
    if arguments.examine or arguments.report:
        with closing(Examiner(model, device=device, threads=config.threads)) as examiner:
            examined = (examiner.examine_file(path, crop=not arguments.no_crop, coverage=coverage) for path in paths)
            make = partial(make_entry, model=identity, side=picture_side(len(paths)))
            read = show(keep_entries(examined, make, entries if arguments.report else None), identity)
        if arguments.report:
            card = page.heading("Model card") + render_card_html(model)
            write_file(Path(arguments.report), render_batch(entries, remarks(model), card))
            sys.stderr.write(f"Report: {arguments.report}\n")
    elif arguments.group:
        names = group_photos(paths, arguments.group)
        predictor = Predictor(model, device=device, batch=min(BATCH, len(paths)), threads=config.threads)
        with closing(predictor):
            thresholds = Thresholds.from_section(model.sections.get(SECTION, {}), len(model.classes))
            photos = report_errors(predictor.diagnose(paths, coverage=coverage))
            plants = diagnose_plants(photos, names, thresholds, model.classes, coverage)
        read = show_plants(plants, "json" if arguments.json else "csv" if arguments.csv else "text", identity)
    else:
        predictor = Predictor(model, device=device, batch=min(BATCH, len(paths)), threads=config.threads)
        with closing(predictor):
            read = show(predictor.diagnose(paths, coverage=coverage), identity)
    return EXIT_DONE if read else EXIT_WRONG_INPUT


def keep_entries(
    found: Iterable[tuple[Diagnosis, Examination | None]], make: Callable[[Diagnosis, Examination | None], Entry],
    entries: list[Entry] | None,
) -> Iterator[Diagnosis]:
    """The diagnoses as they come; their entries of the report are kept where one is wanted."""
    for diagnosis, examination in found:
        if entries is not None:
            entries.append(make(diagnosis, examination))
        yield diagnosis


def _refuse(error: OSError) -> None:
    raise DataError(f"The folder {error.filename} cannot be read: {error.strerror}. Change its permissions, or move it "
                    "out of the photo folder.")  # fmt: skip


def find_photos(named: Iterable[str]) -> Iterator[str]:
    """The files named, and all photos below the folders named, in sorted order. Raises DataError."""
    for name in named:
        if not os.path.isdir(name):
            yield name
            continue
        inside = []
        for folder, folders, files in os.walk(name, onerror=_refuse):
            folders[:] = [inner for inner in folders if not inner.startswith(".")]  # telephones keep .thumbnails
            inside += [
                os.path.join(folder, file)
                for file in files
                if file.lower().endswith(NAMED) and not file.startswith(".")  # macOS leaves ._photo.jpg
            ]
        inside.sort()
        if not inside:
            raise DataError(f"There are no photos in {name}.")
        yield from inside


def show_json(diagnoses: Iterable[Diagnosis], model: ModelIdentity) -> int:
    """One object per photo and line; the number of photos that could be read."""
    read = 0
    answer: dict[str, object]
    for d in diagnoses:
        top = [{"label": g.label, "probability": g.probability} for g in d.top]
        answer = {"path": d.path, "verdict": d.verdict, "top": top, "milliseconds": round(d.milliseconds, 3)}
        if d.reason:
            answer["reason"] = d.reason
        more = {"diseased": d.diseased, "grade": d.grade, "notes": list(d.notes) or None}
        answer |= {name: value for name, value in more.items() if value is not None}
        answer |= as_fields(model)
        print(json_line({"path": d.path, "error": d.error} if d.error else answer), flush=True)
        read += not d.error
    return read


def show_csv(diagnoses: Iterable[Diagnosis], model: ModelIdentity) -> int:
    names = [f"{what}{n}" for n in range(1, TOP + 1) for what in ("label", "probability")]
    _print_row(["path", "verdict", *names, "milliseconds", "error", "diseased", "grade", *as_fields(model)])
    read = 0
    for d in diagnoses:
        guesses = [cell for g in d.top for cell in (g.label, f"{g.probability:.6f}")]
        guesses += [""] * (2 * TOP - len(guesses))
        more = ["" if v is None else f"{v:.4g}" for v in (d.diseased, d.grade)]
        _print_row([d.path, d.verdict, *guesses, "" if d.error else f"{d.milliseconds:.2f}", d.error, *more,
                    *as_fields(model).values()])
        read += not d.error
    return read


def _print_row(row: Sequence[str]) -> None:
    """A row of the table; on a terminal names show their control characters, in a file they keep them."""
    sys.stdout.write(csv_text([map(printable, row) if sys.stdout.isatty() else row]))


def show_text(diagnoses: Iterable[Diagnosis], model: ModelIdentity) -> int:
    read = 0
    for d in diagnoses:
        guesses = ", ".join(f"{g.label} {stated(g.probability).replace(SPACE, ' ')}" for g in d.top)
        verdict = f"{d.verdict}. {d.reason} " if d.reason else ""
        area = "" if d.diseased is None else f"; {d.diseased:.1f} % of the leaf diseased (grade {d.grade} of 11)"
        notes = "".join(f" {note}" for note in d.notes)
        stop = "." if notes and not d.error else ""
        print(printable(f"{d.path}: {d.error or verdict + guesses + area}{stop}{notes}"), flush=True)
        read += not d.error
    return read


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="leafclinic diagnose", allow_abbrev=False,
        description="Diagnose photos. Nothing leaves this computer.",
        epilog=f"Shipped models: {' '.join(f'{name}: {use}' for name, use in SHIPPED_MODELS.items())} {EXIT_CODES}.",
    )
    parser.add_argument("model_file", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("photos", metavar="PHOTO", nargs="+", help="photo files, or folders of photos")
    parser.add_argument("--json", action="store_true", help="print one JSON object per photo, one per line")
    parser.add_argument("--csv", action="store_true", help="print a CSV table with one line per photo")
    parser.add_argument("--examine", action="store_true", help="also measure the diseased area; photos are cropped "
                        "to small leaves first")  # fmt: skip
    parser.add_argument("--no-crop", action="store_true", help="with --examine: do not crop photos to small leaves")
    parser.add_argument("--report", metavar="OUT.html", default="",
                        help="also write an HTML report with pictures (implies --examine)")
    parser.add_argument("--group", choices=GROUPINGS, default="",
                        help="diagnose plants instead of photos: photos of one plant are in one folder, or were taken "
                        "within a minute of one another")  # fmt: skip
    parser.add_argument("--coverage", default="", metavar="SHARE",
                        help="fraction of photos to diagnose, 0..1; lower means higher confidence "
                        f"(default: {COVERAGE})")
    add_settings(parser, only=("device", "threads"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
