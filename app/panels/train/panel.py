"""The Train page: settings on the left; figures, curves, kernels, confusion and runs on the right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

from app.actions import Actions
from app.panels.train.confusion import ConfusionPane
from app.panels.train.curves import CurvesPane
from app.panels.train.kernels import KernelTimesPane
from app.panels.train.outcome import OutcomePane, headline
from app.panels.train.runs import RunsPane
from app.panels.train.setup import SetupPane
from app.paths import Settings
from app.task import Task
from app.translation import duration, number, stage_text, tr
from app.viewmodels.runs import RunSummary, RunView, read_run
from app.viewmodels.training import State, TrainingModel
from app.widgets.layouts import GAP, PAGE, Flow, column, row
from app.widgets.notice import Notice
from app.widgets.parts import Figure, action_button, header, label, progress_bar, side_width, tabs
from core.percent import percent

REDRAW_MS: Final = 500
"""Interval of the timer that draws one plot at a time, only if it is visible and changed: drawing takes time from
training."""


class TrainPanel(QWidget):
    """Its parts `runs`, `outcome` and `confusion` have signals."""

    def __init__(self, model: TrainingModel, actions: Actions, settings: Settings, runs: Callable[[], Path]) -> None:
        super().__init__()
        self._model = model
        self.setup = SetupPane(settings)
        self.notice = Notice()
        self.curves = CurvesPane(self.notice)
        self.kernels = KernelTimesPane()
        self.confusion = ConfusionPane()
        self.runs = RunsPane(runs, lambda: model.folder if model.busy else "")
        self.outcome = OutcomePane(actions)
        self._make_figures()
        self.start = action_button(actions.start, "play", primary=True)
        self.pause = action_button(actions.pause, "pause")
        self.stop = action_button(actions.stop, "stop")
        self._lay_out()
        self._undrawn = 0  # plots that were not drawn since the last event
        self._urgent = ""
        self._earlier: RunView | None = None
        self._listed: object = None
        self._timer = QTimer(self, interval=REDRAW_MS)
        self._timer.timeout.connect(self._on_tick)
        self._connect()
        self._on_state(model.state)
        self.redraw()

    def _make_figures(self) -> None:
        self.figures = {
            "epoch": Figure(tr("epoch"), tr("In one epoch every training photo is used once.")),
            "loss": Figure(tr("loss of this step"),
                           tr("The error that training minimizes. It falls while the network learns.")),
            "best": Figure(tr("best validation"), tr(
                "Accuracy on the validation photos after the best epoch. The model of that epoch is kept. After "
                "training, “Result” shows its accuracy on the test photos. With several labels per photo, all labels "
                "must be right at threshold 0.5.")),
            "speed": Figure(tr("photos per second")),
            "left": Figure(tr("time left")),
        }  # fmt: skip
        self.progress = progress_bar(tr("Progress of the run"))
        self.stage = label("", "muted", wrap=True)

    def _connect(self) -> None:
        model = self._model
        model.changed.connect(self._on_changed)
        model.state_changed.connect(self._on_state)
        model.failed.connect(self._on_failed)
        self.runs.refused.connect(self.notice.alarm)
        self.runs.chosen_over.connect(self._on_lay_over)
        self.runs.result_asked.connect(self._on_result_asked)

    def _lay_out(self) -> None:
        self.tabs = tabs(
            tr("About the run"), (self.curves, tr("Curves")), (self.kernels, tr("Kernels")),
            (self.confusion, tr("Confusion")), (self.outcome, tr("Result")), (self.runs, tr("Runs")),
        )  # fmt: skip
        self.tabs.tabBar().setProperty("role", "narrow")  # five names beside the settings
        self.tabs.currentChanged.connect(lambda _: self.redraw())
        figures = Flow(*self.figures.values(), spacing=4, fill=[*self.figures.values()])
        right = column(figures, self.progress, self.stage, (self.tabs, 1), spacing=GAP)
        subtitle = tr("Train a network on your own classes, on this computer.")
        head = header(tr("Train"), subtitle, self.start, self.pause, self.stop)
        body = row(self.setup, (right, 1), spacing=GAP)
        self.setLayout(column(head, self.notice, (body, 1), spacing=GAP, margins=PAGE))

    def _on_tick(self) -> None:
        """Draw some of what changed, until every plot was drawn once after the last event."""
        if not self.isVisible() or self.tabs.currentWidget() is not self.curves:
            self.redraw()
            return
        self._undrawn -= 1
        self._show_figures()
        self.curves.show_next(self._model.view)
        if not self._undrawn:
            self._timer.stop()

    def take_over(self, before: TrainPanel) -> None:
        """Show the settings and earlier runs that the page in another language has shown."""
        self.setup.form.take_over(before.setup.form.values())
        self._earlier, self.curves.compared = before._earlier, before.curves.compared

    @property
    def evaluated(self) -> RunView:
        """The run of the Confusion and Result tabs: the current one, or the one whose result was asked for."""
        return self._earlier or self._model.view

    def redraw(self) -> None:
        view = self._model.view
        self._timer.stop()
        if not self.isVisible():
            return
        self._show_figures()
        shown = self.tabs.currentWidget()
        if shown is self.curves:
            self.curves.show_run(view)
        elif shown is self.kernels:
            self.kernels.show_times(view.kernels)
        elif shown is self.confusion:
            self.confusion.show_run(self.evaluated)
        elif shown is self.outcome:
            self.outcome.show_run(self.evaluated)
        elif shown is self.runs and self._listed is not (news := view.epoch or view.started):
            self._listed = news
            self.runs.refresh()

    def resizeEvent(self, event: object) -> None:  # noqa: N802 (Qt's names here and below)
        self.setup.setFixedWidth(side_width(self))

    def showEvent(self, event: object) -> None:  # noqa: N802
        QTimer.singleShot(0, self, self.redraw)

    def _show_figures(self) -> None:
        view = self._model.view
        started, running = view.started, self._model.busy
        epoch = (view.epoch.epoch + 1 if view.epoch else 0) + running  # the current one, or how many were done
        self.figures["epoch"].show_value(f"{min(epoch, started.epochs)} / {started.epochs}" if started else "–")
        self.figures["loss"].show_value(number(view.loss, "{:.3f}"))
        self.figures["best"].show_value(percent(view.best))
        self.figures["speed"].show_value(number(view.photos_per_second, "{:,.1f}"))
        left = tr("soon") if 0 < view.total_steps <= view.step else duration(view.seconds_left)
        self.figures["left"].show_value(left if running else "–")
        self.progress.setMaximum(max(view.total_steps, 1))
        self.progress.setValue(view.step if started else 0)
        self.stage.setText(self._stage())
        self.stage.setVisible(bool(self.stage.text()))
        self.progress.setVisible(running)
        if running and view.urgent and view.urgent != self._urgent:
            self.notice.alarm(view.urgent)
        elif running and self._urgent and not view.urgent:
            self.notice.hide()
        self._urgent = view.urgent

    def _stage(self) -> str:
        view, state = self._model.view, self._model.state
        if view.finished is not None and state is State.IDLE:
            return ""
        if state is State.PAUSED:
            return tr("Paused. Press “Resume” to continue.")
        if state is State.STOPPING:
            return tr("Stopping: saving a checkpoint…")
        if view.progress is not None and state is State.RUNNING:
            return stage_text(view.progress.stage, view.progress.done, view.progress.total)
        if view.started and state is State.RUNNING:
            memory = view.epoch.memory_bytes if view.epoch else view.started.memory_bytes
            return tr("{train} training photos, {validation} validation photos, {device}. A training step needs "
                      "{memory} MB.", train=f"{view.started.train_photos:,}", device=view.started.device,
                      validation=f"{view.started.validation_photos:,}", memory=f"{memory / 2**20:,.0f}")
        return tr("Starting the training process…") if state is State.RUNNING else ""

    def _on_changed(self) -> None:
        self._undrawn = len(self.curves.plots)
        if not self._timer.isActive():
            self._timer.start()

    def _on_state(self, state: State) -> None:
        for part in (self.setup.form, self.setup.starts):
            part.setEnabled(state is State.IDLE)
        self.setup.show_running(self._model.dataset if state is not State.IDLE else "")
        if state is State.IDLE:
            if self.runs.isVisible():
                self.runs.refresh()
            self._tell_end()
        else:
            self._earlier = None
            self.notice.hide()
            if self.tabs.currentWidget() is self.outcome:  # it has nothing to show until the end
                self.tabs.setCurrentWidget(self.curves)
        self.redraw()

    def _tell_end(self) -> None:
        end = self._model.view.finished
        if end is not None and end.reason == "stopped":
            verb, folder = tr("Resume") if end.step else "", self._model.folder
            self.notice.show_message(headline(end, self._model.view), verb, lambda: self.runs.resume_asked.emit(folder))
        elif end is not None:
            self.notice.hide_alarm()  # advice to stop the run
            self.tabs.setCurrentWidget(self.outcome)

    def _on_failed(self, message: str, details: str) -> None:
        folder = self._model.resumable
        again = (tr("Resume"), lambda: self.runs.resume_asked.emit(folder)) if folder else ("", None)
        self.notice.alarm(message, details, *again)

    def _on_lay_over(self, runs: list[RunSummary]) -> None:
        others = [run for run in runs if run.folder != self._model.folder]
        many = Counter(run.name for run in others)
        named = {run.name if many[run.name] == 1 else f"{Path(run.folder).name} ({run.name})": Path(run.folder)
                 for run in others}  # fmt: skip
        Task(lambda *_: {name: read_run(folder) for name, folder in named.items()}, self, done=self._on_compared)

    def _on_compared(self, compared: dict[str, RunView]) -> None:
        self.curves.compared = compared
        self.tabs.setCurrentWidget(self.curves)
        self.redraw()  # it may have been shown meanwhile

    def _on_result_asked(self, folder: str) -> None:
        Task(lambda *_: read_run(Path(folder)), self, done=self._on_result)

    def _on_result(self, earlier: RunView) -> None:
        self._earlier = earlier
        self.tabs.setCurrentWidget(self.outcome)
        self.redraw()
