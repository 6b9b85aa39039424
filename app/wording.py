"""Numbers, times and stages of a run in words."""

from __future__ import annotations

import math

from app.translation import tr
from app.viewmodels.run_view import RunView


def number(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "–"


def duration(seconds: float) -> str:
    """A time in words: "45 s", "12 min", "3 h 20 min"."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 90:
        return tr("{n} s", n=round(seconds))
    minutes = round(seconds / 60)
    return tr("{n} min", n=minutes) if minutes < 90 else tr("{h} h {m} min", h=minutes // 60, m=minutes % 60)


def epoch_text(view: RunView, running: bool) -> str:
    """The current epoch, or how many were done, and their total."""
    if view.started is None:
        return "–"
    done = view.epoch.epoch + 1 if view.epoch else 0
    return f"{min(done + running, view.started.epochs)} / {view.started.epochs}"


def stage_text(stage: str, done: int, total: int) -> str:
    """What the run does besides its steps."""
    known = {
        "scan": tr("Listing photos"),
        "cache": tr("Decoding the photos once"),
        "health": tr("Checking photos"),
        "copies": tr("Looking for near-duplicates"),
        "review": tr("Computing features of the photos"),
        "folds": tr("Comparing labels with predictions"),
        "leaves": tr("Segmenting leaves"),
        "compile": tr("Preparing the kernels"),
        "tune": tr("Measuring the kernels"),
        "validate": tr("Evaluating on validation photos"),
        "validation": tr("Evaluating on validation photos"),
        "test": tr("Evaluating on test photos"),
        "field": tr("Evaluating on your field photos"),
        "border": tr("How much can be predicted from the photo borders?"),
        "features": tr("Measuring feature statistics"),
        "calibration": tr("Calibrating confidence"),
        "background": tr("Testing dependence on the background"),
    }
    text = known.get(stage, tr(stage.capitalize()))
    return f"{text}: {done:,} / {total:,}" if total else text if text.endswith("?") else f"{text}…"
