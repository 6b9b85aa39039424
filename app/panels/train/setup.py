"""The settings of a training: the start, the form, its problems, and the memory that the run will need."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFrame, QWidget

from app.paths import Settings
from app.project import dataset_name
from app.translation import sentence, tr
from app.viewmodels.model_list import shipped_model
from app.widgets.layouts import Flow, PageArea, column, holding, row
from app.widgets.parts import label, scrolling, switch
from app.widgets.run_form import RunForm
from core.config import RunConfig, from_dict
from core.errors import ConfigError, Problem
from core.training.presets import PRESETS

TRANSFER: Final = "transfer"
DEMO: Final = "demo"
SCRATCH: Final = {"cpu": "tomato-cpu", "cuda": "gpu"}
"""Preset for training from scratch on each device."""


def presets() -> Mapping[str, Mapping[str, Any]]:
    """The presets of the form: `transfer` starts from the shipped model."""
    values = {name: dict(preset.values) for name, preset in PRESETS.items()}
    values[TRANSFER]["start"] = shipped_model()
    return values


class SetupPane(QFrame):
    """The left column of the page. `edited` is emitted after every change of a field."""

    edited = Signal()

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self._settings = settings
        self.form = RunForm(presets())
        self._device, self._demo = "cpu", False
        self.start, starts = switch((tr("Pretrained leaf model"), ""), (tr("From scratch"), ""))
        self.start.idClicked.connect(lambda at: self.form.choose_preset(SCRATCH[self._device] if at else TRANSFER))
        self.about_start = label("", "caption", wrap=True)
        self.starts = holding(column(Flow(*starts, spacing=0), self.about_start, spacing=6, margins=(0, 2, 8, 4)))
        self.form.choose_preset(TRANSFER)
        self.form.changed.connect(self._on_edited)
        self.data = label("", "muted", wrap=True)
        self._data = self._running = ""
        self.others = label("", "problem", wrap=True)
        self.others.hide()
        self.memory = label("", "caption", wrap=True)
        self._switch, buttons = switch((tr("Simple"), ""), (tr("Expert"), ""))
        expert = settings.text("expert") == "true"
        self._switch.button(int(expert)).setChecked(True)
        self.form.set_expert(expert)
        self._switch.idToggled.connect(self._on_mode)
        self._lay_out(buttons)
        self._follow()

    def _lay_out(self, buttons: list[QWidget]) -> None:
        self._scroll = scrolling(self.form)  # to the focused field by itself
        head = row((label(tr("Settings"), "heading"), 1), Flow(*buttons, spacing=0), margins=(0, 0, 8, 0))
        self.setLayout(column(
            head, self.data, self.starts, (self._scroll, 1), self.others, self.memory, margins=(14, 12, 8, 12),
        ))  # fmt: skip

    def show_data(self, data: str, demo: bool = False) -> None:
        """Show the open photos; the synthetic leaves of the demo have a preset of their own."""
        self._data = data
        self._show_data()
        if demo != self._demo:
            self._demo = demo
            self.form.choose_preset(DEMO if demo else TRANSFER)

    def show_running(self, dataset: str) -> None:
        """Show the photos of the active run, "" if there is none."""
        self._running = dataset
        self._show_data()

    def _show_data(self) -> None:
        opened = dataset_name(self._data) if self._data else ""
        text = tr("Photos: {name}", name=opened) if opened else tr("No photos yet: open a folder under Dataset.")
        if self._running and self._running != opened:
            text = tr("Current training data: {name}.", name=self._running)
            text += " " + tr("Open for the next training: {name}", name=opened) if opened else ""
        self.data.setText(text)
        self.data.setToolTip(self._data)

    def show_device(self, device: str) -> None:
        """Set the device that a run would use, once it is known: it decides the preset from scratch."""
        self._device = device

    def config(self, data: str, out: str = "") -> RunConfig | None:
        """The configuration in the form, or None with the problems shown at their fields."""
        try:
            config = from_dict({**self.form.values(), "data": data, "out": out})
        except ConfigError as error:
            self.show_problems(error.problems)
            return None
        self.show_problems([])
        return config

    def show_problems(self, problems: list[Problem] | tuple[Problem, ...]) -> None:
        rest = self.form.show_problems(problems)
        captions = {name: field.row.label for name, field in self.form.fields.items()}
        texts = [f"{tr(captions.get(p.field, p.field))}: {sentence(p.message)}" for p in rest]
        self.others.setText("\n".join(texts))
        self.others.setVisible(bool(texts))

    def show_wrong(self) -> None:
        """Scroll to the first wrong field, once the page has made room for a message."""
        if field := self.form.wrong():
            for area in (self._scroll, *self.window().findChildren(PageArea)):
                QTimer.singleShot(0, area, partial(area.ensureWidgetVisible, field))

    def _on_mode(self, expert: int, checked: bool) -> None:
        if checked:
            self._settings.set("expert", bool(expert))
            self.form.set_expert(bool(expert))

    def _on_edited(self) -> None:
        self.config("")
        self._follow()
        self.edited.emit()

    def _follow(self) -> None:
        """Show where the training starts, also if it was set in the form."""
        values = self.form.values()
        start = str(values["start"])
        self.start.button(int(not start)).setChecked(True)
        if values["preset"] == DEMO:
            text = tr("Training on the synthetic leaves starts from scratch and takes about a minute.")
        elif start:
            text = tr("Starts from the pretrained model “{name}”. For small datasets: 50 photos per class, a "
                      "few minutes.", name=Path(start).stem)  # fmt: skip
        else:
            text = tr("Trains on your photos only. Needs several hundred photos per class and more time.")
        self.about_start.setText(text)
        self.form.set_expert(self._switch.checkedId() == 1)
