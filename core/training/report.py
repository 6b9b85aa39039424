"""The report of a run: one HTML page without other files, with figures, curves, tables and how to reproduce them."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from core.config import RunConfig, settings
from core.diagnosis import page
from core.diagnosis.calibration import describe_error, describe_offset
from core.diagnosis.metrics import Metrics, Subset
from core.diagnosis.model_card import render_card_html
from core.diagnosis.model_file import CALIBRATION, ModelFile
from core.diagnosis.thresholds import COVERAGE, Thresholds
from core.errors import option_name
from core.percent import percent, percents
from core.training.charts import ChartSeries, draw_bars, draw_confusion, draw_interval, draw_lines
from core.training.conditions import Conditions
from core.training.events import History
from core.training.presets import PRESETS
from core.training.run_evaluation import RunEvaluation
from core.training.run_folder import SPLIT

MOST_CONFUSIONS: Final = 5
CLASS_COLUMNS: Final = (
    page.Column("class", "21%"), page.Column("photos", "10%", True), page.Column("recall", "11%", True),
    page.Column("", "11%"), page.Column("95 % interval", "13%", True), page.Column("precision", "13%", True),
    page.Column("95 % interval", "13%", True), page.Column("F1", "8%", True),
)  # fmt: skip
"""Columns of the table of classes. Qt's rich text needs the widths; the column without a title has bars."""
ALWAYS: Final = frozenset({"optimizer", "learning_rate", "weight_decay", "batch_size", "schedule", "augment"})
"""Settings that the report lists also at their defaults."""
ELSEWHERE: Final = frozenset({"out", "cache", "split", "device", "threads", "preset", "minutes"})
"""Settings that the command sets separately or that do not affect the result; a time limit is not reproducible."""
LOW_RECALL: Final = 0.8
"""Recall of a class below which its bar is red."""


@dataclass(frozen=True, slots=True)
class ReportData:
    config: RunConfig
    history: History
    evaluation: RunEvaluation
    model: ModelFile
    conditions: Conditions
    seconds: float
    photos: tuple[tuple[str, str], ...] = ()


def render_report(data: ReportData) -> str:
    evaluation = data.evaluation
    figures, device = evaluation.result.figures, data.conditions.device
    title = f"LeafClinic: {data.model.graph.name} on {len(figures.classes)} classes"
    when = time.strftime("%Y-%m-%d %H:%M")
    return page.render_page(title, [
        f"<h1>{escape(title)}</h1>",
        page.paragraphs([f"Training run, {when}. {data.seconds / 60:.1f} minutes on {device}."], "muted"),
        *_summary(evaluation),
        *(page.note(text) for text in data.history.warnings),
        page.heading("Dependence on the background"), *_background(evaluation),
        page.heading("Curves"), _curves(data.history),
        page.heading(f"Class by class ({evaluation.split} photos)"), _classes(figures),
        *_confusion(figures),
        page.heading("Confidence and calibration"), *_confidence(data.model),
        page.heading("Settings and run"), _run_table(data),
        page.heading("Reproduction"), *_reproduction(data),
        page.heading("Model card"), render_card_html(data.model),
    ])  # fmt: skip


def _summary(evaluation: RunEvaluation) -> list[str]:
    """The main figures, lab beside field, and what they mean."""
    result, baseline, reading = evaluation.result, evaluation.baseline, evaluation.reading
    figures, parts = result.figures, result.parts
    parts = parts if len(parts) > 1 else (Subset.whole(result.name, figures),)
    right = "all labels right" if figures.several else "right"
    shown = [(percent(p.accuracy), f"{right}, {p.name}", f"{percents(*p.interval)}, {p.photos} photos") for p in parts]
    ends = "–".join(f"{end:.3f}" for end in figures.f1_interval or ())
    shown.append((f"{figures.macro_f1:.3f}", "macro F1", ", ".join(filter(None, (ends, "mean over the classes")))))
    if figures.several:
        shown.append((f"{figures.several.average_precision:.3f}", "mean average precision", "mean over the labels"))
    if baseline is not None:
        shown.append((percent(baseline.border), "from the border only", "without the leaf"))
    if reading is not None:
        shown.append((percent(reading.swapped), "on another background", f"instead of {percent(reading.plain)}"))
    cautions = map(page.note, evaluation.cautions())
    return [page.tiles(shown), page.paragraphs(evaluation.verdict(), "lead"), *cautions]


def _background(evaluation: RunEvaluation) -> list[str]:
    doubts, reading, baseline = evaluation.doubts(), evaluation.reading, evaluation.baseline
    if not doubts:
        return [page.paragraphs(["Not tested in this run (--leaf-tests no)."])]
    rows = [(f"the network, {evaluation.split} photos", evaluation.result.figures.accuracy, page.GREEN)]
    if baseline is not None:
        rows += [("border baseline", baseline.border, page.RED),
                 ("always the most common class", baseline.commonest, page.MUTED)]  # fmt: skip
    if reading is not None:
        rows += [("validation photos, unchanged", reading.plain, page.GREEN),
                 ("background blurred", reading.blurred, page.GREEN),
                 ("background swapped", reading.swapped, page.GREEN)]  # fmt: skip
    if not evaluation.result.parts:
        doubts = (*doubts, "It is not known where these photos were taken. Evaluate your own field photos with --field "
                           "FOLDER: accuracy on lab photos says little about plants outdoors.")  # fmt: skip
    return [page.bullets(doubts), draw_bars("Accuracy", rows)]


def _curves(history: History) -> str:
    per_epoch = max(history.started.steps_per_epoch if history.started else 1, 1)
    steps, epochs = history.steps, history.epochs
    several = any(epoch.mean_f1 is not None for epoch in epochs)

    def of_steps(name: str) -> tuple[tuple[float, float], ...]:
        return tuple((s.step / per_epoch, getattr(s, name)) for s in steps)

    def of_epochs(name: str) -> tuple[tuple[float, float], ...]:
        return tuple((e.epoch + 1.0, getattr(e, name)) for e in epochs)

    charts = [
        draw_lines("Loss", [ChartSeries("training", of_steps("loss")),
                            ChartSeries("validation", of_epochs("validation_loss"))], "epoch"),
        draw_lines("Accuracy at threshold 0.5" if several else "Accuracy",
                   [ChartSeries("training", of_epochs("train_accuracy")),
                    ChartSeries("validation", of_epochs("validation_accuracy"))], "epoch"),
        draw_lines("Learning rate", [ChartSeries("rate", of_steps("learning_rate"))], "epoch"),
        draw_lines("Photos per second", [ChartSeries("training", of_epochs("photos_per_second"))], "epoch"),
    ]
    return page.side_by_side(charts)


def _classes(figures: Metrics) -> str:
    rows = []
    for c in figures.occurring:
        colour = page.GREEN if c.recall >= LOW_RECALL else page.RED
        interval, bar = percents(*c.recall_interval, 0), draw_interval(c.recall, c.recall_interval, colour)
        rows.append([
            escape(c.label), str(c.photos), *((percent(c.recall), bar, interval) if c.photos else ("–", "", "–")),
            *((percent(c.precision), percents(*c.precision_interval, 0)) if c.predicted else ("–", "–")),
            f"{c.f1:.3f}",
        ])  # fmt: skip
    note = "The bar shows the 95 % confidence interval (Wilson) of the recall, from 0 to 100 %."
    return page.paragraphs([note], "muted") + page.table(CLASS_COLUMNS, rows)


def _confusion(figures: Metrics) -> list[str]:
    if figures.several:
        return []
    wrong = sorted(
        ((count, i, j) for i, counts in enumerate(figures.confusion) for j, count in enumerate(counts)
         if i != j and count), reverse=True,
    )  # fmt: skip
    texts = [f"{figures.classes[i]} was predicted as {figures.classes[j]}: {count} of {sum(figures.confusion[i])} "
            "photos."
            for count, i, j in wrong[:MOST_CONFUSIONS]]  # fmt: skip
    return [
        page.heading("Confusion matrix"),
        page.bullets(texts) if texts else page.paragraphs(["There were no misclassifications."]),
        page.paragraphs(["Rows are true classes, columns are predictions."], "muted"),
        f'<div class="scroll">{draw_confusion(figures)}</div>',
    ]


def _confidence(model: ModelFile) -> list[str]:
    """Reliability plot, and accuracy against coverage."""
    charts, texts = [], []
    if CALIBRATION in model.sections:
        found: dict[str, Any] = model.sections[CALIBRATION]
        bins = found["bins"]
        most = max(b["photos"] for b in bins)
        points = tuple((float(b["stated"]), float(b["right"])) for b in bins)
        ideal = ChartSeries("ideal", ((0.0, 0.0), (1.0, 1.0)))
        charts.append(draw_lines("Calibration",
                                 [ideal, ChartSeries("measured", points, tuple(b["photos"] / most for b in bins))],
                                 "predicted probability", "accuracy", x=(0, 1), y=(0, 1.0), percent=True))
        texts.append(f"{describe_error(found['error'], found['chance'])} The logits are divided by the temperature "
                     f"{model.temperature:.3f}{describe_offset(model.offset)}. Larger dots stand for more photos.")
    thresholds = model.thresholds
    if thresholds is not None and not thresholds.labels:
        least = min(p.coverage for p in thresholds.curve)
        charts += [_draw_coverage(thresholds, least)] if least < 1 else []
        texts.append("With a higher minimum confidence, fewer photos are diagnosed and more of the diagnoses are "
                    f"correct (validation photos). By default about {100 * COVERAGE:.0f} % are "
                    "diagnosed." if least < 1 else
                    "The model diagnoses every photo at every minimum confidence, because its probabilities are too "
                    "similar. Longer training may help.")
    if not texts:
        return [page.paragraphs(["There were too few validation photos to measure this."])]
    return [page.paragraphs(texts), page.side_by_side(charts) if charts else ""]


def _draw_coverage(thresholds: Thresholds, least: float) -> str:
    curve = thresholds.curve
    answers = ChartSeries("accuracy", tuple((p.coverage, p.accuracy) for p in curve))
    low = min(min(p.accuracy for p in curve) - 0.01, 0.98)
    return draw_lines("Minimum confidence", [answers], "coverage", x=(least, 1), y=(low, 1.0), percent=True)


def _run_table(data: ReportData) -> str:
    mean, deviation = (data.model.graph.nodes[0].attributes[name] for name in ("mean", "std"))
    facts = [
        ("Interpolation", f"area averaging to {data.model.source_side} pixels; bilinear to enlarge and augment"),
        ("Normalization", f"(RGB / 255 - mean) / deviation, mean {mean}, deviation {deviation}"),
        *data.photos,
        ("Epochs computed", f"{len(data.history.epochs)} / {data.config.epochs}"),
        ("Waiting for data", f"{100 * data.history.waiting_share():.1f} % of the training time"),
    ]
    for name, (entry, row) in settings().items():
        value = getattr(data.config, name)
        if name in ALWAYS or (name not in ("out", "cache") and value != entry.default):
            facts.append((row.label, ", ".join(value) if isinstance(value, tuple) else str(value)))
    return page.table((page.Column(), page.Column()), [(escape(name), escape(value)) for name, value in facts])


def _reproduction(data: ReportData) -> list[str]:
    config, conditions = data.config, data.conditions
    return [
        page.paragraphs([describe_reproducibility(config, conditions),
                         "Evaluate the model of this run on the same photos:"]),
        page.command(evaluation_command(config, data.evaluation.split)),
        page.paragraphs(["Repeat the training on the same split (it lists every photo with its group and SHA-256):"]),
        page.command(training_command(config, conditions)),
    ]


def describe_reproducibility(config: RunConfig, conditions: Conditions) -> str:
    """State the version, seed and device, and when another computer gives the same bits."""
    made = f"Computed with seed {config.seed} on {conditions}."
    if config.minutes:
        return (f"{made} The training had a time limit of {config.minutes:g} minutes, so its number of steps depends "
                "on the speed of the computer. The first command reproduces the accuracy in any case.")  # fmt: skip
    return (f"{made} Under the same conditions the result is bit-identical; under others, rounding may change some "
            "predictions.")  # fmt: skip


def evaluation_command(config: RunConfig, evaluated: str) -> str:
    """The command that evaluates the model of the run on its photos and split."""
    split = {"validation": "val"}.get(evaluated, evaluated)
    return shlex.join(["leafclinic", "evaluate", os.path.abspath(config.out), "--split", split])


def training_command(config: RunConfig, conditions: Conditions) -> str:
    """The command that trains the same network on the same split, into a new folder."""
    words = ["leafclinic", "train"]
    recipe = PRESETS[config.preset].values if config.preset in PRESETS else {}
    if recipe:
        words += ["--preset", config.preset]
    for name, (entry, _) in settings().items():
        value = getattr(config, name)
        given = not (name == "model" and config.start)  # whose network it is
        if given and name not in ELSEWHERE and value != recipe.get(name, entry.default):
            words += _option(name, value)
    words += ["--split", os.path.join(os.path.abspath(config.out), SPLIT), "--device", conditions.device]
    if conditions.threads:
        words += ["--threads", str(conditions.threads)]
    return shlex.join([*words, "--out", os.path.abspath(config.out) + "-again"])


def _option(name: str, value: Any) -> list[str]:
    flag = option_name(name)
    if isinstance(value, tuple):
        return [word for each in value for word in (flag, each)]
    return [flag, {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)]
