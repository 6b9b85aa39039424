"""Prints diagnoses of photos and of plants as text, JSON lines or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from core.diagnosis.model_identity import ModelIdentity, as_fields
from core.diagnosis.plant import Plant
from core.diagnosis.prediction import Diagnosis, LeafDiagnosis
from core.diagnosis.severity import grade
from core.diagnosis.verdict import TOP, UNFAMILIAR, ClassProbability, describe_leaves
from core.percent import SPACE, percent, stated
from core.text import csv_text, json_line, printable

COLUMNS: Final[Mapping[str, str]] = {
    "path": "", "verdict": "",
    **{f"{what}{n}": digits for n in range(1, TOP + 1) for what, digits in (("label", ""), ("probability", ".6f"))},
    "milliseconds": ".2f", "error": "", "reason": "", "diseased": ".4g", "grade": ".4g",
    **dict.fromkeys(as_fields(ModelIdentity()), ""),
}  # fmt: skip
"""The columns of a table of photos, and how CSV has their numbers; "" is text."""
WITH_LEAVES: Final[Mapping[str, str]] = {**COLUMNS, "leaf": "d", **dict.fromkeys(("y0", "x0", "y1", "x1"), ".4f")}
"""The same for photos that may show several leaves: the leaf's number, and its box as shares of the centred square."""
OF_PLANTS: Final[Mapping[str, str]] = {**dict.fromkeys(("plant", "photos", "used"), ""), **{
    name: COLUMNS[name] for name in COLUMNS if name not in ("path", "milliseconds", "error", "diseased", "grade")
}}  # fmt: skip


def show_photos(
    diagnoses: Iterable[Diagnosis], form: str, model: ModelIdentity, columns: Mapping[str, str] = COLUMNS
) -> int:
    """Print one line per photo, in CSV then one for each of several leaves; returns the number of readable photos.
    form: "text", "json" or "csv"; columns: of CSV."""
    read = 0
    if form == "csv":
        _print_row(columns)
    for d in diagnoses:
        if form == "csv":
            for row in (make_row(d, model), *_leaf_rows(d, model)):
                _print_row(cells(row, columns))
        else:
            _print_line(json_line(_describe_photo(d, model)) if form == "json" else _photo_sentence(d))
        read += not d.error
    return read


def _describe_photo(d: Diagnosis, model: ModelIdentity) -> dict[str, object]:
    if d.error:
        return {"path": d.path, "error": d.error}
    answer = _state(d.verdict, d.reason, d.top, path=d.path, milliseconds=round(d.milliseconds, 3))
    more = {"diseased": d.diseased, "grade": d.grade, "notes": list(d.notes) or None}
    answer |= {name: value for name, value in more.items() if value is not None}
    if d.leaves:
        answer["leaves"] = [_describe_leaf(leaf) for leaf in d.leaves]
    return {**answer, **as_fields(model)}


def _state(verdict: str, reason: str, top: Iterable[ClassProbability], **of: object) -> dict[str, object]:
    """The diagnosis of a photo, leaf or plant, for JSON, with thresholds of several labels; of: what it is of."""
    likely = [{"label": g.label, "probability": g.probability}
              | ({} if g.threshold is None else {"threshold": g.threshold}) for g in top]  # fmt: skip
    return {**of, "verdict": verdict, "top": likely, **({"reason": reason} if reason else {})}


def _describe_leaf(leaf: LeafDiagnosis) -> dict[str, object]:
    answer = _state(leaf.verdict.word, leaf.verdict.reason, leaf.top, box=[round(side, 4) for side in leaf.box])
    return answer if leaf.diseased is None else answer | {"diseased": leaf.diseased, "grade": grade(leaf.diseased)}


def _leaf_rows(d: Diagnosis, model: ModelIdentity) -> Iterator[dict[str, Any]]:
    for number, leaf in enumerate(d.leaves, 1):
        place = dict(zip(("y0", "x0", "y1", "x1"), leaf.box, strict=True))
        alone = Diagnosis(d.path, leaf.verdict.word, leaf.top, reason=leaf.verdict.reason, diseased=leaf.diseased)
        yield make_row(alone, model) | {"milliseconds": None, "leaf": number, **place}


def make_row(d: Diagnosis, model: ModelIdentity) -> dict[str, Any]:
    """The values of COLUMNS, None if missing."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    for number, guess in enumerate(d.top[:TOP], 1):
        row |= {f"label{number}": guess.label, f"probability{number}": guess.probability}
    time = None if d.error else d.milliseconds
    return row | {"path": d.path, "verdict": d.verdict, "milliseconds": time, "error": d.error, "diseased": d.diseased,
                  "reason": " ".join(filter(None, (d.reason, *d.notes))), "grade": d.grade, **as_fields(model)}


def cells(row: Mapping[str, Any], columns: Mapping[str, str] = COLUMNS) -> list[str]:
    return ["" if row.get(name) is None else format(row[name], digits) for name, digits in columns.items()]


def _print_row(row: Iterable[str]) -> None:
    """Print a row; on a terminal control characters of names are shown as text."""
    sys.stdout.write(csv_text([map(printable, row) if sys.stdout.isatty() else row]))


def _photo_sentence(d: Diagnosis) -> str:
    found = describe_leaves([leaf.verdict.word for leaf in d.leaves])
    text = f"{found}. {d.reason}" if found and d.reason else found or _describe(d.verdict, d.reason, d.top)
    area = f"; {d.diseased:.1f} % of the leaf diseased (grade {d.grade} of 11)" if d.diseased else ""
    line = f"{d.path}: {d.error or text + area}"
    stop = "." if d.notes and not line.endswith(".") else ""
    return printable(" ".join((line + stop, *d.notes)))


def _describe(verdict: str, reason: str, top: Sequence[ClassProbability]) -> str:
    """The most probable classes; after the verdict if it has a reason, or photos may have several labels.

    The probabilities of an unfamiliar photo do not apply to it, and are left out.
    """
    if reason == UNFAMILIAR:
        return f"{verdict}. {reason}"
    several = any(g.threshold is not None for g in top)
    limits = ("" if g.threshold is None else f" (threshold {percent(g.threshold)})" for g in top)
    guesses = ", ".join(f"{g.label} {stated(g.probability)}{limit}" for g, limit in zip(top, limits, strict=True))
    return (f"{verdict}. {reason}".strip() + f" {guesses}" if reason or several else guesses).replace(SPACE, " ")


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report_errors(diagnoses: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    """Pass the diagnoses on and report photos that cannot be read."""
    for diagnosis in diagnoses:
        if diagnosis.error:
            sys.stderr.write(f"{printable(diagnosis.path)}: {printable(diagnosis.error)}\n")
        yield diagnosis


def show_plants(plants: Sequence[Plant], form: str, model: ModelIdentity) -> int:
    """Print one line per plant; returns the number of plants. form: "text", "json" or "csv"."""
    if form == "csv":
        _print_row(OF_PLANTS)
    for plant in plants:
        verdict, counts = plant.verdict, {"plant": plant.name, "photos": plant.photos, "used": plant.used}
        if form == "csv":
            found = Diagnosis("", verdict.word, plant.top, reason=verdict.reason)
            _print_row(cells({**make_row(found, model), **counts}, OF_PLANTS))
        else:
            answer = _state(verdict.word, verdict.reason, plant.top, **counts)
            _print_line(json_line({**answer, **as_fields(model)}) if form == "json" else _plant_sentence(plant))
    return len(plants)


def _plant_sentence(plant: Plant) -> str:
    text = _describe(plant.verdict.word, plant.verdict.reason, plant.top)
    return printable(f"{plant.name} ({plant.used} of {plant.photos} photos): {text}".rstrip())
