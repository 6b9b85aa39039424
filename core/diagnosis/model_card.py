"""Model cards (Mitchell et al., "Model cards for model reporting", 2019), written from the model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from core.diagnosis import background_dependence, page
from core.diagnosis.background_dependence import BackgroundDependence
from core.diagnosis.calibration import describe_error, describe_offset, describe_temperatures
from core.diagnosis.model_file import CALIBRATION, DATA, TEST, ModelFile
from core.diagnosis.model_identity import ORIGIN
from core.diagnosis.thresholds import COVERAGE, UNFAMILIAR_REJECTED, at_coverage, describe_label_thresholds
from core.diagnosis.training_photos import MARK_BYTES
from core.percent import percent, percents

Row: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of the card: title, first sentence, points, and tables as (head, rows, sentence after the table)."""

    title: str
    lead: str = ""
    points: tuple[str, ...] = ()
    tables: tuple[tuple[Row, Sequence[Row], str], ...] = ()


def render_card_html(model: ModelFile) -> str:
    parts = [page.paragraphs([describe_model(model)])]
    for chapter in chapters(model):
        parts.append(f"<h3>{escape(chapter.title)}</h3>" + page.paragraphs([chapter.lead] if chapter.lead else []))
        for head, rows, after in chapter.tables:
            columns = [page.Column(title, number=at > 0) for at, title in enumerate(head)]
            parts.append(page.table(columns, [[escape(cell) for cell in row] for row in rows]))
            parts.append(page.paragraphs([after] if after else []))
        parts.append(page.bullets(chapter.points))
    return "".join(parts)


def describe_model(model: ModelFile) -> str:
    height, width = model.size
    half = " (8-bit weights)" if model.steps else " (half-precision weights)" if model.half else ""
    both = " Each prediction is the mean over the photo and its mirror image." if model.views == 2 else ""
    return (
        f"{model.graph.name}: {model.parameters:,} parameters, {1e-6 * model.stored_bytes:.1f} MB{half}. Input: the "
        f"central square of the photo at {height} x {width} pixels. {len(model.classes)} classes.{both}"
    )


def chapters(model: ModelFile) -> tuple[Chapter, ...]:
    reading = BackgroundDependence.from_section(model.sections.get(background_dependence.SECTION))
    background = Chapter("Dependence on the background", points=reading.sentences() if reading else ())
    known = map(str, model.sections.get(DATA, {}).get("weaknesses", ()))
    found = (_data(model), _test(model), _trust(model), background, Chapter("Known weaknesses", points=tuple(known)))
    return tuple(chapter for chapter in found if chapter.lead or chapter.points or chapter.tables)


def _data(model: ModelFile) -> Chapter:
    section: Mapping[str, Any] = model.sections.get(DATA, {})
    points = [str(text) for text in section.get("sources", ())]
    if model.licence:
        points.append(f"Licence: {model.licence}")
    if model.data_hash:
        points.append(f"Training data (SHA-256 over paths, classes and contents): {model.data_hash}")
    if model.learned is not None:
        marks = model.learned.marks
        points.append(f"The file records {len(marks):,} training photos by {MARK_BYTES} bytes of the SHA-256 of "
                      f"each ({1e-3 * marks.nbytes:.1f} kB), so that data leakage can be detected. The photos cannot "
                      "be recovered from them.")
    return Chapter("Training data", points=tuple(points))


def _test(model: ModelFile) -> Chapter:
    section: Mapping[str, Any] = model.sections.get(TEST, {})
    title = "Accuracy"
    if not section:
        return Chapter(title)
    parts = [_row(r) for r in section.get("parts", ())]
    classes = [(*_row(r), percent(r["precision"] if r.get("predicted", 1) else None), f"{r['f1']:.3f}")
               for r in section.get("classes", ())]
    macro = f"Macro F1: {float(section.get('macro_f1', 0)):.3f}."
    if "average_precision" in section:
        macro += f" Mean average precision: {float(section['average_precision']):.3f}."
    return Chapter(title, str(section.get("note", "")), tables=(
        (("part", "photos", "right", "95 % interval"), parts, macro),
        (("class", "photos", "recall", "95 % interval", "precision", "F1"), classes, ""),
    ))  # fmt: skip


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    share = (percent(row["right"]), percents(*row["interval"])) if row["photos"] else ("–", "–")
    return (str(row["name"]), str(row["photos"]), *share)


def _trust(model: ModelFile) -> Chapter:
    points = []
    calibration = model.sections.get(CALIBRATION)
    if calibration:
        error = describe_error(calibration["error"], calibration.get("chance"))
        points.append(f"{error} Temperature {model.temperature:.3f}{describe_offset(model.offset)}.")
    if model.class_temperatures:
        points.append(describe_temperatures(model))
    thresholds = model.thresholds
    if thresholds is not None and thresholds.labels:
        points.append(describe_label_thresholds(thresholds, model.classes))
    elif thresholds is not None and ORIGIN not in model.sections:
        point = at_coverage(thresholds.curve, COVERAGE)
        points.append(f"By default {percent(point.coverage, 0)} of the validation photos have a high enough "
                      f"confidence; {percent(point.accuracy)} of these predictions are correct, and "
                      f"{percent(point.wrongly_refused)} of the correct predictions are rejected. Up to "
                      f"{percent(UNFAMILIAR_REJECTED, 0)} more are rejected as unfamiliar.")
    return Chapter("Confidence and calibration", points=tuple(points))
