"""Prints diagnoses of plants as text, JSON lines or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from core.diagnosis.diagnosis_output import describe_top
from core.diagnosis.model_identity import ModelIdentity, as_fields
from core.diagnosis.plant import Plant
from core.diagnosis.prediction import TOP, Diagnosis
from core.percent import SPACE, stated
from core.text import csv_text, json_line, printable


def report_errors(diagnoses: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    """Pass the diagnoses on and report photos that cannot be read."""
    for diagnosis in diagnoses:
        if diagnosis.error:
            sys.stderr.write(f"{printable(diagnosis.path)}: {printable(diagnosis.error)}\n")
        yield diagnosis


def show_plants(plants: Sequence[Plant], form: str, model: ModelIdentity) -> int:
    """Print one line per plant; returns the number of plants. form: "text", "json" or "csv"."""
    if form == "csv":
        names = [f"{what}{n}" for n in range(1, TOP + 1) for what in ("label", "probability")]
        header = ["plant", "photos", "used", "verdict", *names, *as_fields(model)]
        sys.stdout.write(csv_text([header, *(_cells(plant, model) for plant in plants)]))
    for plant in plants if form != "csv" else ():
        sys.stdout.write((_json(plant, model) if form == "json" else _sentence(plant)) + "\n")
    return len(plants)


def _cells(plant: Plant, model: ModelIdentity) -> list[object]:
    guesses = [cell for g in plant.top for cell in (g.label, f"{g.probability:.6f}")]
    guesses += [""] * (2 * TOP - len(guesses))
    return [plant.name, plant.photos, plant.used, plant.verdict.word, *guesses[: 2 * TOP], *as_fields(model).values()]


def _json(plant: Plant, model: ModelIdentity) -> str:
    answer = {"plant": plant.name, "photos": plant.photos, "used": plant.used, "verdict": plant.verdict.word}
    reason = {"reason": plant.verdict.reason} if plant.verdict.reason else {}
    return json_line({**answer, "top": describe_top(plant.top), **reason, **as_fields(model)})


def _sentence(plant: Plant) -> str:
    guesses = ", ".join(f"{g.label} {stated(g.probability).replace(SPACE, ' ')}" for g in plant.top)
    several = any(g.threshold is not None for g in plant.top)
    text = f"{plant.verdict.word}. {plant.verdict.reason}".strip()
    verdict = f"{text} " if plant.verdict.reason or several else ""
    return printable(f"{plant.name} ({plant.used} of {plant.photos} photos): {verdict}{guesses}".rstrip())
