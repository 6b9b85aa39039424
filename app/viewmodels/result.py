"""One diagnosed photo in the window, its verdict at a given coverage, and the table columns that show it."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from app.cards import disease_name
from app.mask import Mask, decode_mask, encode_mask, select_lesions
from app.translation import count, language, sentence, tr
from app.viewmodels.row_order import Column
from core.diagnosis.boxes import WHOLE, Box
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.severity import grade
from core.diagnosis.verdict import NOT_SURE, UNFAMILIAR, DecisionRule, Prediction, Verdict, count_findings
from core.ops.contract import Array
from core.percent import stated, whole_percent

if TYPE_CHECKING:
    from core.diagnosis.plant import Plant


@dataclass(slots=True)
class PhotoResult:
    """One photo: waiting, cancelled, or done (readable or not). Not frozen, which takes four times as long for 20,000.

    limits: the threshold of each class of `top`, where a photo may have several; sure: the verdict is a class (else
    `reason` says why not); notes: further sentences; diseased: percent of the leaf area, or None; maps: requested
    class maps, uint8 ``(height, width)``; probabilities of all classes and familiarity: inputs of the verdict; hash:
    SHA-256 of the photo file; key: changes when the file does; measured: leaf and diseased area as measured; mask: as
    corrected by a user; model: which made the prediction. leaves: results of the leaves of a photo that shows several,
    in the order of `count_findings`, each with its number as id, its box in the photo's central square, and share: its
    lesions in percent of the area of all leaves.
    taken: seconds since 1970 by the camera's clock, or 0; plant: what a file states of its plant (`plant_cells`).
    others: results of the same file where leaves were cropped, or several leaves diagnosed, or not.
    """

    id: int
    path: str
    done: bool = False
    verdict: str = ""
    top: tuple[tuple[str, float], ...] = ()
    limits: tuple[float, ...] = ()
    error: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    diseased: float | None = None
    maps: dict[str, Array] = field(default_factory=dict)
    probabilities: tuple[float, ...] = ()
    familiarity: float = 0.0
    hash: str = ""
    key: str = ""
    measured: Mapping[str, Any] | None = None
    mask: Mask | None = None
    box: Box = WHOLE
    leaves: tuple[PhotoResult, ...] = ()
    share: float = 0.0
    cancelled: bool = False
    model: ModelIdentity = ModelIdentity()
    taken: int = 0
    plant: tuple[Any, ...] = ()
    others: Mapping[tuple[bool, bool], PhotoResult] = field(default_factory=dict)

    @property
    def probability(self) -> float:
        return self.top[0][1] if self.top else 0.0

    @property
    def sure(self) -> bool:
        return Verdict(self.verdict).is_class

    @property
    def unfamiliar(self) -> bool:
        """Whether the photo looks unlike the training photos: the probabilities do not apply to it."""
        return self.reason == UNFAMILIAR

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that the photo has: the diagnosis, or all whose probability reaches their threshold."""
        if not self.sure or not self.limits:
            return tuple(name for name, _ in self.top[: int(self.sure)])
        reached = zip(self.top, self.limits, strict=True)
        return tuple(name for (name, share), limit in reached if share >= limit)

    @property
    def healthy(self) -> bool:
        return self.sure and not self.sick

    @property
    def sick(self) -> bool:
        return Verdict(self.verdict).is_disease

    @property
    def shown_percent(self) -> float | None:
        """Diseased percent of the leaf, or of all leaves, if meaningful: of diseased leaves, or corrected by a user."""
        if self.mask is not None:
            return self.mask.severity.percent
        if not self.sick:
            return None
        return sum(leaf.share for leaf in self.leaves if leaf.sick) if self.leaves else self.diseased

    def area(self) -> Mask | None:
        """Leaf and diseased area: corrected, or as measured; of several leaves the lesions of the diseased ones."""
        found = self.mask or (decode_mask(self.measured) if self.measured else None)
        return select_lesions(found, {leaf.id for leaf in self.leaves if leaf.sick}) if found and self.leaves else found


SENT: Final = {f.name for f in fields(PhotoResult)} - {
    "id", "path", "done", "cancelled", "top", "maps", "measured", "mask", "model", "leaves", "others",
}
"""Fields that processes send and receive under their own names, as they are."""


def read_result(row: PhotoResult, answer: Mapping[str, Any]) -> PhotoResult:
    found: dict[str, Any] = {name: answer[name] for name in SENT & answer.keys()}
    found |= {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
    return PhotoResult(
        row.id, row.path, done=True, cancelled=row.cancelled, measured=answer.get("mask"),
        model=ModelIdentity(**answer.get("model", {})),
        top=tuple((label, float(p)) for label, p in answer.get("top", ())),
        leaves=tuple(read_result(replace(row, id=leaf["id"]), leaf) for leaf in answer.get("leaves", ())),
        **found,
    )


def read_map(raw: Mapping[str, Any]) -> Array:
    """A class map, uint8 ``(height, width)``."""
    return np.frombuffer(base64.b64decode(raw["data"]), np.uint8).reshape(raw["height"], raw["width"])


def restricted(result: PhotoResult, rule: DecisionRule) -> Prediction:
    """The prediction of a photo or leaf, for the known crop."""
    return Prediction(*rule.restrict(np.array(result.probabilities), result.familiarity))


def decide(result: PhotoResult, rule: DecisionRule) -> PhotoResult:
    """The result with its verdict at another coverage, or for a known crop; nothing is computed again."""
    if result.leaves:
        leaves = [decide(leaf, rule) for leaf in result.leaves]
        ranks = [word for word, _ in count_findings([leaf.verdict for leaf in leaves])]
        leaves.sort(key=lambda leaf: (ranks.index(leaf.verdict), -leaf.probability))
        first = leaves[0]
        return replace(result, leaves=tuple(leaves), verdict=first.verdict, reason=first.reason, top=first.top,
                       limits=first.limits)  # fmt: skip
    if not result.probabilities or len(result.probabilities) != len(rule.classes):
        return result
    prediction = restricted(result, rule)
    verdict, top = rule.decide(prediction), rule.list_top(prediction)
    return replace(result, verdict=verdict.word, reason=verdict.reason,
                   top=tuple((guess.label, guess.probability) for guess in top),
                   limits=tuple(guess.threshold for guess in top if guess.threshold is not None))  # fmt: skip


def verdict_text(result: PhotoResult) -> str:
    if result.cancelled:
        return tr("Cancelled")
    if not result.done:
        return tr("Waiting…")
    if result.error:
        return tr("Unreadable")
    return findings(result)[0] if result.leaves else _verdict_words(result.verdict, language())


def verdict_cell(result: PhotoResult) -> str:
    """The verdict in a table: of an uncertain one with the most probable class, or that the photo is unfamiliar."""
    if result.leaves or result.cancelled or not result.top or result.verdict != NOT_SURE:
        return verdict_text(result)
    if result.unfamiliar:
        return tr("Not sure: unfamiliar photo")
    return tr("Not sure: {name}?", name=disease_name(result.top[0][0]))


def findings(result: PhotoResult) -> list[str]:
    """What was found on how many leaves of a photo that shows several, in the order of `count_findings`."""
    return [tr("{n} of {total} leaves: {finding}", n=many, total=len(result.leaves),
               finding=_verdict_words(word, language()))
            for word, many in count_findings([leaf.verdict for leaf in result.leaves])]  # fmt: skip


@cache
def _verdict_words(verdict: str, language: str) -> str:
    text = disease_name(verdict) if Verdict(verdict).is_class else tr(verdict)
    return text[:1].upper() + text[1:]


def doubts(result: PhotoResult) -> str:
    """Why there is no diagnosis, or what makes it doubtful, with classes by their display names."""
    text = " ".join(sentence(text) for text in (result.reason, *result.notes) if text)
    if result.leaves:
        text = " ".join([*(f"{text}." for text in findings(result)[1:]), text]).strip()
    for label, _ in result.top:
        text = text.replace(label, disease_name(label))
    return text


def plant_text(plant: Plant) -> str:
    """The plant by the title of its folder or first photo, its diagnosis, and how many photos it has."""
    text = _verdict_words(plant.verdict.word, language())
    if plant.verdict.is_class and plant.top:
        text = f"{text} {stated(plant.top[0].probability)}"
    photos = count(plant.photos, "{n} photo", "{n} photos")
    if plant.used < plant.photos:
        photos = tr("photos used: {used} of {n}", used=f"{plant.used:,}", n=f"{plant.photos:,}")
    return f"{plant.title}: {text} ({photos})"


def plant_cells(plant: Plant | None) -> tuple[Any, ...]:
    """What a file states of a plant: the values of PLANT_COLUMNS, and a sentence."""
    if plant is None:
        return ()
    share = f"{plant.top[0].probability:.6f}" if plant.top else ""
    text = tr("Plant {plant}", plant=plant_text(plant))
    return plant.name, plant.photos, plant.used, plant.verdict.word, share, text


def severity_text(result: PhotoResult) -> str:
    """The diseased area with its grade; empty if it is not meaningful."""
    diseased = result.shown_percent
    if diseased is None:
        return ""
    if not diseased and result.mask is None:  # "0 %" would contradict the diagnosis
        return tr("No diseased area was found.")
    text = tr("Diseased share of the leaf area: {share}.", share=whole_percent(diseased / 100))
    level = tr("Grade {grade} of 11 (Horsfall-Barratt).", grade=grade(diseased))
    hand = " " + tr("Edited by hand.") if result.mask is not None else ""
    return f"{text} {level}{hand}"


def stem(path: str) -> str:
    """A photo's name in the list, if no other photo has it."""
    return os.path.splitext(os.path.basename(path))[0]


PLANT: Final = 5
"""Position in `columns` of the plant, shown as the second one while there are plants."""


def columns(plant_of: Callable[[PhotoResult], Plant | None], titles: Mapping[str, str]) -> list[Column]:
    """The columns of the list; titles: of photos whose name others have, by path."""

    def name_cell(row: PhotoResult) -> str:
        title = titles.get(row.path) or stem(row.path)
        beside = (plant := plant_of(row)) is not None and plant.name == os.path.dirname(row.path)  # the plant names it
        return os.path.basename(title) if beside else title

    def plant_cell(row: PhotoResult) -> str:
        return plant_text(plant) if (plant := plant_of(row)) else ""

    return [
        Column(tr("Photo"), name_cell, tip=lambda r: r.path,
               searched=lambda r: f"{name_cell(r)} {os.path.basename(r.path)}"),
        Column(tr("Diagnosis"), verdict_cell, tip=lambda r: sentence(r.error) if r.error else doubts(r),
               searched=verdict_cell),
        Column(tr("Probability"), lambda r: stated(r.probability) if r.top and not r.unfamiliar else "",
               lambda r: 0.0 if r.unfamiliar else r.probability, True,
               help=tr("How often diagnoses like this one are correct on photos like the model's validation photos")),
        Column(tr("Leaf diseased"), _diseased, lambda r: r.shown_percent or 0.0, True,
               help=tr("Diseased share of the leaf area")),
        Column(tr("Model"), lambda r: r.model.name, tip=lambda r: f"{r.model.date} {r.model.short_hash}"),
        Column(tr("Plant"), plant_cell, searched=plant_cell,
               tip=lambda r: " ".join((plant.name, sentence(plant.verdict.reason))) if (plant := plant_of(r)) else "",
               help=tr("One diagnosis of all photos of a plant")),
    ]  # fmt: skip


def _diseased(result: PhotoResult) -> str:
    share, hand = result.shown_percent or 0.0, "" if result.mask is None else " ✎"
    return whole_percent(share / 100) + hand if share or hand else ""


def to_line(result: PhotoResult) -> dict[str, Any]:
    """What a file states of a photo, as JSON, without class maps."""
    mask = result.mask
    same = {*SENT, "id", "path", "done", "cancelled", "top"} - {"probabilities"}  # no file has all classes
    return {name: getattr(result, name) for name in same} | {
        "mask": result.measured, "model": asdict(result.model), "leaves": [to_line(leaf) for leaf in result.leaves],
        "corrected": None if mask is None else encode_mask(mask.severity, mask.box),
    }


def from_line(line: Mapping[str, Any]) -> PhotoResult:
    row = read_result(PhotoResult(int(line["id"]), str(line["path"]), cancelled=bool(line["cancelled"])), line)
    hand = line["corrected"]
    mask = None if hand is None else replace(decode_mask(hand), corrected=True)
    return replace(row, done=bool(line["done"]), mask=mask)
