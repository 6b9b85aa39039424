"""The result of a finished run in words, and what to do next."""

from __future__ import annotations

import os

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.actions import Actions
from app.translation import sentence, tr
from app.viewmodels.runs import RunView
from app.widgets.layouts import TAB, Flow, column, holding, stack
from app.widgets.parts import EmptyPlace, action_button, button, card, label, scrolling
from core.percent import percent
from core.training.events import RunFinished


class OutcomePane(QWidget):
    """Signal: `diagnose_asked(model file)`."""

    diagnose_asked = Signal(str)

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self._model, self.report = "", ""
        self._actions = actions
        self.name, self.headline = label("", "muted", wrap=True), label("", "title", wrap=True)
        self.words, self.notes = label("", wrap=True), label("", "muted", wrap=True)
        for text in (self.words, self.notes):
            text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        use = tr("Diagnose with this model")
        self.use = button(use, lambda: self.diagnose_asked.emit(self._model), "primary")
        scroll = scrolling(holding(column(self.words, self.notes, None, spacing=24)), tr("What the result means"))
        reports = (action_button(actions.run_report, "search"), action_button(actions.run_pdf, "export"))
        empty = EmptyPlace("train", tr("No result yet"), tr(
            "After a run this page shows the accuracy on photos that were not used in training, the border baseline, "
            "and the difference between lab and field photos."))  # fmt: skip
        self._stack = stack(empty, card(self.name, self.headline, (scroll, 1), Flow(self.use, *reports)))
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
        self.name.setText(tr("Run: {name}", name=view.name))
        self._model = end.model_path
        self.use.setEnabled(bool(end.model_path))
        self.headline.setText(headline(end, view))
        warned = dict.fromkeys(view.warnings)  # a resumed run repeats them
        leaks = [event.message for event in warned if event.kind == "leakage"]
        words = [sentence(text) for text in (*(evaluated.words[1:] if evaluated else ()), *leaks)]
        self.words.setText("\n\n".join([*words, *choice_text(view)]))
        self.notes.setText("\n\n".join(sentence(event.message) for event in warned if event.kind != "leakage"))


def choice_text(view: RunView) -> list[str]:
    """Why the test accuracy differs from that of the best epoch; nothing without a test split."""
    if view.evaluated is None or view.evaluated.split != "test" or view.best_epoch is None:
        return []
    return [tr("Validation accuracy after epoch {epoch}, the best one: {share}. These photos were used to choose the "
               "epoch, so this accuracy is slightly too high. The test photos were not used for any choice.",
               share=best_text(view.best, view), epoch=view.best_epoch.epoch + 1)]  # fmt: skip


def best_text(accuracy: float, view: RunView) -> str:
    """The validation accuracy of the best epoch, and of several labels what it counts."""
    share = percent(accuracy)
    return tr("{share} (all labels right at threshold 0.5)", share=share) if view.several else share


def headline(end: RunFinished, view: RunView) -> str:
    """The result as a sentence: the accuracy, or why there is none."""
    if end.reason == "stopped" and not end.step:
        return tr("Stopped before the first step. Nothing was changed.")
    if end.reason == "stopped":
        return tr("Stopped and saved. You can resume it under “Runs”.")
    if view.evaluated is not None:
        return sentence(view.evaluated.words[0])
    return tr("Finished. Validation accuracy {best} after epoch {epoch}.",
              best=best_text(end.best_accuracy, view), epoch=end.best_epoch + 1)  # fmt: skip
