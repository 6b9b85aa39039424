"""Report entries of examined photos, in English, for the command line."""

from __future__ import annotations

from collections.abc import Iterator

from core.diagnosis.batch_report import Entry, draw_picture
from core.diagnosis.examination import Examination
from core.diagnosis.model_file import TEST, ModelFile
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.prediction import Diagnosis, LeafDiagnosis
from core.diagnosis.severity import SCALE, grade
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, UNFAMILIAR, describe_leaves, is_healthy
from core.percent import percent, percents, stated


def make_entry(found: Diagnosis, examined: Examination | None, model: ModelIdentity, side: int) -> Entry:
    """The entry of an examined or unreadable photo; side: of its picture, in pixels."""
    if examined is None:
        return Entry(found.path, "unreadable", sentences=(found.error,), model=model)
    kind = "muted" if found.verdict in (NOT_SURE, NO_LEAF) else "well" if is_healthy(found.verdict) else "sick"
    severity = examined.severity
    picture = draw_picture(examined.photo, severity.leaf, severity.lesions if kind == "sick" else None, side,
                           boxes=[leaf.box for leaf in found.leaves])  # fmt: skip
    guesses = tuple((label_text(guess.label), guess.probability) for guess in found.top if found.reason != UNFAMILIAR)
    sentences = [label_text(describe_leaves([leaf.verdict.word for leaf in found.leaves])), found.reason, *found.notes]
    sentences.append(_describe_area(found.diseased if kind == "sick" else None))
    sentences += [_describe_leaf(number, leaf) for number, leaf in enumerate(found.leaves, 1)]
    return Entry(found.path, label_text(found.verdict), kind, tuple(sentences), guesses,
                 found.diseased if kind == "sick" else None, picture, model)  # fmt: skip


def _describe_leaf(number: int, leaf: LeafDiagnosis) -> str:
    sure = f" {stated(leaf.top[0].probability)}" if leaf.verdict.is_class else ""
    return f"Leaf {number}: {label_text(leaf.verdict.word)}{sure}. {_describe_area(leaf.diseased)}".rstrip()


def _describe_area(diseased: float | None) -> str:
    if not diseased:
        return "" if diseased is None else "No diseased area was found."
    return f"About {percent(diseased / 100)} of the leaf area is diseased. Grade {grade(diseased)} of 11 ({SCALE})."


def remarks(model: ModelFile) -> Iterator[str]:
    """The accuracy of the model on test photos, from the lab and the field."""
    parts = model.sections.get(TEST, {}).get("parts", ())
    figures = [f"{row['name']} {percent(row['right'])} ({percents(*row['interval'])})" for row in parts
            if row["name"] == "all" or "photos" in row["name"]]  # fmt: skip
    if figures:
        yield f"Accuracy of this model, as measured after its training: {'; '.join(figures)}."


def label_text(label: str) -> str:
    """A class or label set as text: ``apple/scab+black_rot`` is "apple: scab + black rot"."""
    return label.replace("/", ": ").replace("_", " ").replace("+", " + ")
