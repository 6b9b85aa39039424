"""What a finished run reached: figures side by side, what they mean in words, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from app.actions import Actions
from app.theme import Theme
from app.translation import sentence, tr
from app.viewmodels.run_view import RunView
from app.widgets.flow import Flow
from app.widgets.naming import named
from app.widgets.parts import EmptyPlace, Figure, action_button, button, card, label
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
        self.words = QLabel()
        self.words.setWordWrap(True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.use: QPushButton = button(tr("Diagnose with this "
                                          "model"), lambda: self.diagnose_asked.emit(self._model), "primary")
        frame, inside = card()
        inside.addWidget(self.headline)
        self._places = Flow()
        inside.addLayout(self._places)
        scroll = named(QScrollArea(), tr("What the result means"))
        scroll.setWidget(self.words)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        inside.addWidget(scroll, 1)
        inside.addLayout(Flow(self.use, action_button(actions.run_report, theme, "search"),
                              action_button(actions.run_pdf, theme, "export")))  # fmt: skip
        self._stack = QStackedWidget()
        self._stack.addWidget(EmptyPlace(theme, "train", tr("No result yet"), tr(
            "After a run this page shows the accuracy on photos that were not used in training, the border baseline, "
            "and the difference between lab and field photos.")))  # fmt: skip
        self._stack.addWidget(frame)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 8, 0, 0)
        outer.addWidget(self._stack)

    def show_run(self, view: RunView) -> None:
        """The run's end, or that there is none yet."""
        end, judged = view.finished, view.judged
        self.report = end.report_path if end is not None and Path(end.report_path).is_file() else ""
        for action in (self._actions.run_report, self._actions.run_pdf):
            action.setEnabled(bool(self.report))
        if end is None:
            self._stack.setCurrentIndex(0)
            return
        self._stack.setCurrentIndex(1)
        self._model = end.model_path
        self.use.setEnabled(bool(end.model_path))
        self.headline.setText(headline(end, judged))
        for tile in self.tiles:
            self._places.removeWidget(tile)
            tile.deleteLater()
        self.tiles = [_tile(name, value) for name, value in figures(end, judged)[:TILES]]
        for tile in self.tiles:
            self._places.addWidget(tile)
        chosen = choice_text(view)
        warned = [sentence(text) for text in dict.fromkeys(view.warnings)]  # a resumed run says them again
        said = [sentence(text) for text in (judged.words if judged else ())]
        self.words.setText("\n\n".join([*said, *chosen, *warned]))


def choice_text(view: RunView) -> list[str]:
    """Why the test figure is another one than that of the best epoch; nothing where there is no test."""
    if view.judged is None or view.judged.judged_on != "test" or view.best_epoch is None:
        return []
    return [tr("Validation accuracy after epoch {epoch}, the best one: {share}. These photos were used to choose the "
               "epoch, so this accuracy is slightly too high. The test photos were not used for any choice.",
               share=percent(view.best), epoch=view.best_epoch.epoch + 1)]  # fmt: skip


def headline(end: RunFinished, judged: RunEvaluated | None) -> str:
    """What the run reached, in a sentence; never the kinder figure alone."""
    if end.reason == "stopped" and not end.step:
        return tr("Stopped before the first step. Nothing was changed.")
    if end.reason == "stopped":
        return tr("Stopped and saved. You can resume it under “Runs”.")
    if judged is not None and judged.parts:
        _, photos, right = judged.parts[0]
        kind = tr("test") if judged.judged_on == "test" else tr("validation")
        share = percent(right / max(photos, 1))
        said = tr("Accuracy {share}: {right} of {photos} {kind} photos "
                  "correct.", right=f"{right:,}", photos=f"{photos:,}",
                  kind=kind, share=share)  # fmt: skip
    else:
        said = tr("Finished. Validation accuracy {best} after epoch {epoch}.",
                  best=percent(end.best_accuracy), epoch=end.best_epoch + 1)  # fmt: skip
    if judged is not None and judged.border is not None:
        said += " " + tr("Border baseline: {border} accuracy from the photo borders "
                         "alone.", border=percent(judged.border))
    return said


def figures(end: RunFinished, judged: RunEvaluated | None) -> list[tuple[str, str]]:
    """(name, figure) side by side: lab and field where known, with the number of photos and the 95 % interval that
    so many allow; the border; the changed background."""
    if judged is None or not judged.parts:
        return [(tr("best validation"), percent(end.best_accuracy))]
    places = judged.parts[1:] or judged.parts[:1]
    found = [(f"{tr(name)} ({photos:,}): {percents(*wilson_interval(right, photos))}", percent(right / max(photos, 1)))
             for name, photos, right in places[:2]]  # fmt: skip
    for share, name in (
        (judged.border, tr("from the border only")), (judged.swapped, tr("on other backgrounds")),
        (judged.off_leaf, tr("of the evidence is outside the leaf")),
    ):  # fmt: skip
        if share is not None:
            found.append((name, percent(share)))
    return found


def _tile(name: str, value: str) -> Figure:
    made = Figure(name, tr("Ranges are {share} confidence intervals (Wilson).",
                           share=percent(0.95, 0)) if "–" in name else "")  # fmt: skip
    made.show_value(value)
    return made
