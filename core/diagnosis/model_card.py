"""The model card: what a model was taught, how good it is and where it fails, written from its own file.

Source of the form: Mitchell et al., "Model cards for model reporting", 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.diagnosis import background
from core.diagnosis.background import ReadingLeaf
from core.diagnosis.completion import CALIBRATION
from core.diagnosis.coverage import at_coverage
from core.diagnosis.model_file import ModelFile
from core.diagnosis.verdict import COVERAGE, SECTION, Thresholds

TEST: Final = "test"
"""Section with the figures on photos never seen: rows of name, photos, right, and an interval, by class and by part."""
DATA: Final = "data"
"""Section with sources, licences, split and known weaknesses, as sentences."""


def render_card(model: ModelFile, name: str) -> str:
    """The card as Markdown."""
    parts = [_heading(model, name), _data(model), _test(model), _trust(model), _background(model), _weaknesses(model)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(model: ModelFile, name: str) -> str:
    height, width = model.size
    megabytes = 4e-6 * (model.parameters + sum(a.size for a in model.extra.values()))
    return (
        f"# {name}\n\n{model.graph.name}, {model.parameters:,} parameters, {megabytes:.1f} MB; sees the centred square "
        f"of a photo at {height} x {width} pixels and tells {len(model.classes)} classes apart."
    )


def _data(model: ModelFile) -> str:
    section: Mapping[str, Any] = model.sections.get(DATA, {})
    lines = [f"- {text}" for text in section.get("sources", ())]
    if model.licence:
        lines.append(f"- Licence: {model.licence}")
    if model.data_hash:
        lines.append(f"- Training data (SHA-256 over paths, classes and contents): `{model.data_hash}`")
    return "## What it was taught\n\n" + "\n".join(lines) if lines else ""


def _test(model: ModelFile) -> str:
    section: Mapping[str, Any] = model.sections.get(TEST, {})
    if not section:
        return ""
    lines = [f"## How good it is\n\n{section.get('note', '')}\n"]
    lines.append(_table(("part", "photos", "right", "95 % interval"), (_row(r) for r in section.get("parts", ()))))
    lines.append("\nMean over classes of F1: " + f"{float(section.get('macro_f1', 0)):.3f}.\n")
    classes = section.get("classes", ())
    rows = ((*_row(r)[:4], f"{r['precision']:.1%}", f"{r['f1']:.3f}") for r in classes)
    lines.append(_table(("class", "photos", "found (recall)", "95 % interval", "precision", "F1"), rows))
    return "\n".join(lines)


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = row["interval"]
    return (str(row["name"]), str(row["photos"]), f"{row['right']:.1%}", f"{low:.1%} to {high:.1%}")


def _trust(model: ModelFile) -> str:
    lines = []
    calibration = model.sections.get(CALIBRATION)
    if calibration:
        lines.append(
            f"- Stated probabilities are off by {calibration['error']:.3f} on average on validation photos "
            f"(expected calibration error, temperature {model.temperature:.3f})."
        )
    thresholds = Thresholds.from_section(model.sections.get(SECTION, {}), len(model.classes))
    if thresholds is not None:
        point = at_coverage(thresholds.curve, COVERAGE)
        lines.append(
            f"- Unless the slider is moved, {point.coverage:.0%} of validation photos are answered, "
            f"{point.accuracy:.1%} of the answers are right, and {point.wrongly_refused:.1%} of right answers are held "
            "back."
        )
    return "## How far to trust an answer\n\n" + "\n".join(lines) if lines else ""


def _background(model: ModelFile) -> str:
    section = model.sections.get(background.SECTION)
    if not section:
        return ""
    said = ReadingLeaf(**section).sentences()
    return "## Is it reading the leaf?\n\n" + "\n".join(f"- {s}" for s in said)


def _weaknesses(model: ModelFile) -> str:
    known = model.sections.get(DATA, {}).get("weaknesses", ())
    return "## Known weaknesses\n\n" + "\n".join(f"- {text}" for text in known) if known else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) + ("--:",) * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
