"""The result of a finished run: figures, their meaning in words, and what to do next."""

from __future__ import annotations

import os
from typing import final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.actions import Actions
from app.theme import Theme
from app.translation import sentence, tr
from app.viewmodels.runs import RunView
from app.widgets.layouts import TAB, Flow, column, stack
from app.widgets.parts import EmptyPlace, Figure, action_button, button, card, label, scrolling
from core.diagnosis.metrics import wilson_interval
from core.percent import percent, percents
from core.training.events import RunEvaluated, RunFinished

TILES = 4


@final
class OutcomePane(QWidget):
    """Signal: `diagnose_asked(model file)`."""

    diagnose_asked = Signal(str)

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._model, self.report = "", ""
        self._actions = actions
        self.headline = label("", "title", wrap=True)
        self.tiles: list[QWidget] = []
        self.words = label("", wrap=True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        use = tr("Diagnose with this model")
        self.use = button(use, lambda: self.diagnose_asked.emit(self._model), "primary")
        self._places = Flow(fill=True)
        scroll = scrolling(self.words, tr("What the result means"))
        reports = (action_button(actions.run_report, theme, "search"), action_button(actions.run_pdf, theme, "export"))
        empty = EmptyPlace(theme, "train", tr("No result yet"), tr(
            "After a run this page shows the accuracy on photos that were not used in training, the border baseline, "
            "and the difference between lab and field photos."))  # fmt: skip
        self._stack = stack(empty, card(self.headline, self._places, (scroll, 1), Flow(self.use, *reports)))
        self.setLayout(column(self._stack, margins=TAB))

    def show_run(self, view: RunView) -> None:
        end, evaluated = view.finished, view.evaluated
        self.report = end.report_path if end is not None and os.path.isfile(end.report_path) else ""
        for action in (self._actions.run_report, self._actions.run_pdf):
            action.setEnabled(bool(self.report))
        if end is None:
            self._stack.setCurrentIndex(0)
            return
        self._stack.setCurrentIndex(1)
        self._model = end.model_path
        self.use.setEnabled(bool(end.model_path))
        self.headline.setText(headline(end, evaluated))
        for tile in self.tiles:
            self._places.removeWidget(tile)
            tile.deleteLater()
        self.tiles = [_tile(name, value) for name, value in figures(end, evaluated)[:TILES]]
        for tile in self.tiles:
            self._places.addWidget(tile)
        chosen = choice_text(view)
        warned = [sentence(text) for text in dict.fromkeys(view.warnings)]  # a resumed run repeats them
        sentences = [sentence(text) for text in (evaluated.words if evaluated else ())]
        self.words.setText("\n\n".join([*sentences, *chosen, *warned]))


def choice_text(view: RunView) -> list[str]:
    """Why the test accuracy differs from that of the best epoch; nothing without a test split."""
    if view.evaluated is None or view.evaluated.split != "test" or view.best_epoch is None:
        return []
    return [tr("Validation accuracy after epoch {epoch}, the best one: {share}. These photos were used to choose the "
               "epoch, so this accuracy is slightly too high. The test photos were not used for any choice.",
               share=percent(view.best), epoch=view.best_epoch.epoch + 1)]  # fmt: skip


def headline(end: RunFinished, evaluated: RunEvaluated | None) -> str:
    """The result as a sentence, with the border baseline beside the accuracy."""
    if end.reason == "stopped" and not end.step:
        return tr("Stopped before the first step. Nothing was changed.")
    if end.reason == "stopped":
        return tr("Stopped and saved. You can resume it under “Runs”.")
    if evaluated is not None and evaluated.parts:
        _, photos, right = evaluated.parts[0]
        kind = tr("test") if evaluated.split == "test" else tr("validation")
        share = percent(right / max(photos, 1))
        text = tr("Accuracy {share}: {right} of {photos} {kind} photos correct.", right=f"{right:,}",
                  photos=f"{photos:,}", kind=kind, share=share)  # fmt: skip
    else:
        text = tr("Finished. Validation accuracy {best} after epoch {epoch}.",
                  best=percent(end.best_accuracy), epoch=end.best_epoch + 1)  # fmt: skip
    if evaluated is not None and evaluated.border is not None:
        border = percent(evaluated.border)
        text += " " + tr("Border baseline: {border} accuracy from the photo borders alone.", border=border)
    return text


def figures(end: RunFinished, evaluated: RunEvaluated | None) -> list[tuple[str, str]]:
    """Name and value of the figures: accuracy in lab and field with photos and 95 % interval; background tests."""
    if evaluated is None or not evaluated.parts:
        return [(tr("best validation"), percent(end.best_accuracy))]
    places = evaluated.parts[1:] or evaluated.parts[:1]
    found = [(f"{tr(name)} ({photos:,}): {percents(*wilson_interval(right, photos))}", percent(right / max(photos, 1)))
             for name, photos, right in places[:2]]  # fmt: skip
    shares = (evaluated.border, evaluated.swapped)
    return found + [(name, percent(share)) for name, share in zip(meanings(), shares, strict=True) if share is not None]


def meanings() -> dict[str, str]:
    """Names of the figures on the background, and what they mean."""
    return {
        tr("from the border only"): tr("Accuracy of a classifier that sees only the borders of the photos. If it is "
                                       "high, the background reveals the class."),
        tr("on other backgrounds"): tr("Accuracy when the leaf is placed on the background of another photo"),
    }  # fmt: skip


def _tile(name: str, value: str) -> Figure:
    interval = tr("Ranges are {share} confidence intervals (Wilson).", share=percent(0.95, 0)) if "–" in name else ""
    made = Figure(name, meanings().get(name, interval))
    made.show_value(value)
    return made
