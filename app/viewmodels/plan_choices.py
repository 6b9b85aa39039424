"""Why each step of a network runs its kernel on a GPU: every candidate, with its cost or the reason against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from app.translation import sentence, tr
from app.viewmodels.rows_model import Column


@final
@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One candidate of one step, or of neighbouring steps that one launch computes.

    `microseconds` is its cost, with `source`; `inside` is what the chosen one adds to the captured step,
    0 without a GPU.
    """

    steps: str
    direction: str
    name: str
    chosen: bool
    microseconds: float
    source: str
    inside: float
    configuration: str
    reason: str


def rows_of(answer: Sequence[Mapping[str, Any]], chosen_only: bool) -> list[CandidateRow]:
    rows = [CandidateRow(**raw) for raw in answer]
    return [row for row in rows if row.chosen or not chosen_only]


def summary(answer: Mapping[str, Any]) -> str:
    """The time of the whole plan: the sum of the chosen costs, and with a GPU that of the captured step."""
    cost = sum(row["microseconds"] for row in answer["explained"] if row["chosen"])
    text = tr("The chosen kernels cost {cost} µs in all.", cost=f"{cost:,.0f}")
    if answer["whole"]:
        parts, whole = f"{answer['parts']:,.0f}", f"{answer['whole']:,.0f}"
        text += " " + tr("In the captured step: {parts} µs. The whole step takes {whole} µs.", parts=parts, whole=whole)
    return text


def columns() -> list[Column]:
    return [
        Column(tr("Step"), lambda r: r.steps, tip=lambda r: r.steps),
        Column(tr("Direction"), lambda r: tr(r.direction.replace("_", " "))),
        Column(tr("Chosen"), lambda r: "✓" if r.chosen else "", lambda r: r.chosen),
        Column(tr("Kernel"), lambda r: r.name, tip=lambda r: r.configuration or None),
        Column(tr("Cost (µs)"), lambda r: "" if r.reason else f"{r.microseconds:,.1f}", lambda r: r.microseconds,
               right=True, help=tr("Measured on this GPU, or estimated from its peak rates")),
        Column(tr("Source"), lambda r: "" if r.reason else tr(r.source)),
        Column(tr("In the step (µs)"), lambda r: f"{r.inside:,.1f}" if r.inside else "", lambda r: r.inside, right=True,
               help=tr("What the kernel adds to the captured step; needs a GPU")),
        Column(tr("Reason against it"), lambda r: sentence(r.reason) if r.reason else "",
               tip=lambda r: sentence(r.reason) if r.reason else None),
    ]
