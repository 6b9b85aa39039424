"""The report of a run: one HTML page that needs nothing else, in words first, then curves and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final, final

from core.config import RunConfig, settings
from core.diagnosis.figures import Figures, wilson_interval
from core.training.chart import Series, draw_lines
from core.training.history import History

STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#1c2b22;background:#fff}
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em;border-bottom:1px solid #cdd8d0}
table{border-collapse:collapse;margin:.6em 0}th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid #e4ebe6}
th:first-child,td:first-child{text-align:left}.charts{display:flex;flex-wrap:wrap;gap:1em}svg{width:460px;max-width:100%}
svg text{font:11px system-ui,sans-serif;fill:#445}svg .t{font-weight:600;fill:#1c2b22}svg .g{stroke:#e4ebe6}
.big{font-size:1.25em}.note{background:#fff6e0;border-left:4px solid #d59b00;padding:.4em .8em}
.scroll{overflow-x:auto}.m td{text-align:center;min-width:2em}
@media(prefers-color-scheme:dark){body{background:#16201a;color:#dfe9e2}svg text{fill:#bcc}svg .t{fill:#dfe9e2}
.note{background:#3a3215}td,th,h2{border-color:#36463c}}
"""


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A further part of the report: a title and HTML that is already escaped."""

    title: str
    html: str


@final
@dataclass(frozen=True, slots=True)
class ReportData:
    """What the page tells. `figures` were counted on `judged_on` ("test" or "validation").

    border_accuracy: what a guess from the photos' border alone reaches there (0..1), where it was measured.
    """

    config: RunConfig
    history: History
    figures: Figures
    judged_on: str
    device: str
    parameters: int
    seconds: float
    warnings: tuple[str, ...] = ()
    border_accuracy: float | None = None
    sections: tuple[Section, ...] = ()


def render_report(data: ReportData) -> str:
    """The whole page."""
    title = f"LeafClinic: {data.config.model} on {len(data.figures.classes)} classes"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>',
        f"<h1>{escape(title)}</h1>",
        _verdict(data),
        *(f'<p class="note">{escape(text)}</p>' for text in data.warnings),
        "<h2>Curves</h2>", _curves(data.history),
        f"<h2>Class by class ({data.judged_on} photos)</h2>", _class_table(data.figures),
        "<h2>What was taken for what</h2>", _confusion_table(data.figures),
        *(f"<h2>{escape(s.title)}</h2>{s.html}" for s in data.sections),
        "<h2>What was done</h2>", _deeds(data),
        "</body></html>\n",
    ]
    return "".join(parts)


def describe_accuracy(figures: Figures, judged_on: str) -> str:
    """One sentence: right of how many, and the interval."""
    low, high = wilson_interval(figures.right, figures.photos)
    return (
        f"{figures.right} of {figures.photos} {judged_on + ' ' if judged_on else ''}photos right: "
        f"{100 * figures.accuracy:.1f} % "
        f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %), macro F1 {figures.macro_f1:.3f}."
    )


def describe_border(figures: Figures, border: float) -> str:
    """What the border-only baseline says about the accuracy, in words."""
    lead = figures.accuracy - border
    text = f"A guess from the photos' border alone, without the leaf, is right for {100 * border:.1f} %. "
    if lead < 0.05:
        return text + "The network is not clearly better: nothing shows that it looks at the leaves."
    return text + f"The network is {100 * lead:.1f} points better; only that part can come from the leaves."


def _verdict(data: ReportData) -> str:
    lines = [f'<p class="big">{escape(describe_accuracy(data.figures, data.judged_on))}</p>']
    if data.judged_on == "validation":
        lines.append(
            '<p class="note">There is no test split. The epoch was chosen on these very photos, '
            "so the figure is too kind.</p>"
        )
    if data.border_accuracy is not None:
        lines.append(f"<p>{escape(describe_border(data.figures, data.border_accuracy))}</p>")
    return "".join(lines)


def _curves(history: History) -> str:
    per_epoch = max(history.started.steps_per_epoch if history.started else 1, 1)
    steps, epochs = history.steps, history.epochs

    def of_steps(name: str) -> tuple[tuple[float, float], ...]:
        return tuple((s.step / per_epoch, getattr(s, name)) for s in steps)

    def of_epochs(name: str) -> tuple[tuple[float, float], ...]:
        return tuple((e.epoch + 1.0, getattr(e, name)) for e in epochs)

    charts = [
        draw_lines("Loss", [Series("training", of_steps("loss")), Series("validation", of_epochs("validation_loss"))],
                   "epoch", ""),
        draw_lines("Accuracy", [Series("training", of_epochs("train_accuracy")),
                                Series("validation", of_epochs("validation_accuracy"))], "epoch", ""),
        draw_lines("Learning rate", [Series("rate", of_steps("learning_rate"))], "epoch", ""),
        draw_lines("Photos per second", [Series("training", of_epochs("photos_per_second"))], "epoch", ""),
    ]
    return f'<div class="charts">{"".join(charts)}</div>'


def _class_table(figures: Figures) -> str:
    def share(value: float, interval: tuple[float, float]) -> str:
        return f"{100 * value:.1f} % <small>({100 * interval[0]:.0f}–{100 * interval[1]:.0f})</small>"

    rows = "".join(
        f"<tr><td>{escape(c.label)}</td><td>{c.photos}</td><td>{share(c.precision, c.precision_interval)}</td>"
        f"<td>{share(c.recall, c.recall_interval)}</td><td>{c.f1:.3f}</td></tr>"
        for c in figures.per_class
    )
    head = "<tr><th>class</th><th>photos</th><th>precision</th><th>recall</th><th>F1</th></tr>"
    return f"<p>In brackets: 95 % intervals (Wilson). Few photos make them wide.</p><table>{head}{rows}</table>"


def _confusion_table(figures: Figures) -> str:
    numbers = range(1, len(figures.classes) + 1)
    head = "".join(f'<th title="{escape(c)}">{n}</th>' for n, c in zip(numbers, figures.classes, strict=True))
    rows = []
    for n, label, counts in zip(numbers, figures.classes, figures.confusion, strict=True):
        total = max(sum(counts), 1)
        cells = "".join(
            f'<td style="background:rgba({"0,158,115" if i == n - 1 else "213,94,0"},{0.85 * count / total:.2f})">'
            f"{count or ''}</td>"
            for i, count in enumerate(counts)
        )
        rows.append(f"<tr><td>{n} {escape(label)}</td>{cells}</tr>")
    return (
        "<p>Rows are the true classes, columns what the network said.</p>"
        f'<div class="scroll"><table class="m"><tr><th></th>{head}</tr>{"".join(rows)}</table></div>'
    )


def _deeds(data: ReportData) -> str:
    started = data.history.started
    facts: list[tuple[str, str]] = [("Device", data.device), ("Parameters", f"{data.parameters:,}")]
    if started:
        facts.append(("Photos", f"{started.train_photos} training, {started.validation_photos} validation, "
                                f"{started.test_photos} test"))
    facts.append(("Epochs", f"{len(data.history.epochs)} of {data.config.epochs}"))
    facts.append(("Time", f"{data.seconds / 60:.1f} minutes"))
    facts.append(("Waiting for photos", f"{100 * data.history.waiting_share():.1f} % of the training time"))
    facts += _changed(data.config)
    return _facts_table(facts)


def _changed(config: RunConfig) -> Sequence[tuple[str, str]]:
    """Label and value of every setting that is not at its default."""
    rows: Mapping[str, Any] = settings()
    changed = []
    for name, (entry, row) in rows.items():
        value = getattr(config, name)
        if value != entry.default and name not in ("out", "cache"):
            changed.append((row.label, ", ".join(value) if isinstance(value, tuple) else str(value)))
    return changed


def _facts_table(facts: Sequence[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in facts) + "</table>"
