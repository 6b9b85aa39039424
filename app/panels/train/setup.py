"""The settings of a training: the form, its problems, and the memory that the run will need."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.panels.train.start_choice import DEMO, TRANSFER, StartChoice, presets
from app.project import dataset_name
from app.settings import Settings
from app.translation import sentence, tr
from app.viewmodels.model_list import shipped_model
from app.widgets.parts import label, row
from app.widgets.run_form import RunForm
from core.config import RunConfig, from_dict
from core.errors import ConfigError, Problem

OF_THE_START = ("model", "image_size")
"""Fields that a file to start from decides."""


@final
class SetupPane(QFrame):
    """The left column of the page. `edited` is emitted after every change of a field."""

    edited = Signal()

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self._settings = settings
        model = shipped_model()
        self.form = RunForm(presets(model))
        self.start = StartChoice(bool(model))
        self.start.chosen.connect(self.form.choose_preset)
        self._demo = False
        if model:
            self.form.choose_preset(TRANSFER)
        self.form.changed.connect(self._on_edited)
        self.data = label("", "muted", wrap=True)
        self._data = self._running = ""
        self.others = label("", "problem", wrap=True)
        self.others.hide()
        self.memory = label("", "caption", wrap=True)
        self._switch = QButtonGroup(self)
        buttons: list[QWidget] = []
        for name, text in (("simple", tr("Simple")), ("expert", tr("Expert"))):
            made = QPushButton(text)
            made.setCheckable(True)
            made.setAutoExclusive(True)
            made.setObjectName(f"mode_{name}")
            made.setProperty("role", "switch")
            self._switch.addButton(made)
            buttons.append(made)
        expert = settings.flag("expert")
        self._switch.buttons()[int(expert)].setChecked(True)
        self.form.set_expert(expert)
        self._switch.buttonToggled.connect(self._on_mode)
        self._lay_out(buttons)
        self._follow()

    def _lay_out(self, buttons: list[QWidget]) -> None:
        self._scroll = scroll = QScrollArea()
        scroll.setWidget(self.form)
        scroll.setWidgetResizable(True)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # it scrolls to the focused field by itself
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 12, 8, 12)
        head = row(label(tr("Settings"), "heading"), None, *buttons, spacing=0)
        head.setContentsMargins(0, 0, 8, 0)  # aligned with the form's fields
        layout.addLayout(head)
        layout.addWidget(self.data)
        layout.addWidget(self.start)
        layout.addWidget(scroll, 1)
        layout.addWidget(self.others)
        layout.addWidget(self.memory)

    def show_data(self, data: str) -> None:
        """Show the open photos: the next run is trained on them."""
        self._data = data
        self._show_data()

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

    def show_demo(self, demo: bool) -> None:
        """Use the preset of the synthetic leaves; other photos use the usual preset."""
        if demo != self._demo:
            self._demo = demo
            self.form.choose_preset(DEMO if demo else self.start.preset(bool(shipped_model())))

    def show_device(self, device: str) -> None:
        """Set the device that a run would use, once it is known: it decides the preset from scratch."""
        self.start.device = device

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
        texts = [f"{tr(self._caption(p.field))}: {sentence(p.message)}" for p in rest]
        self.others.setText("\n".join(texts))
        self.others.setVisible(bool(texts))

    def show_wrong(self) -> None:
        """Scroll to the first field with a problem."""
        field = self.form.wrong()
        if field is not None:
            self._scroll.ensureWidgetVisible(field)

    def show_memory(self, text: str) -> None:
        self.memory.setText(text)

    def _caption(self, name: str) -> str:
        return self.form.fields[name].row.label if name in self.form.fields else name

    def _on_mode(self, button: QPushButton, checked: bool) -> None:
        if checked:
            expert = button.objectName() == "mode_expert"
            self._settings.set("expert", expert)
            self.form.set_expert(expert)

    def _on_edited(self) -> None:
        self.config("")
        self._follow()
        self.edited.emit()

    def _follow(self) -> None:
        values = self.form.values()
        self.start.show_start(str(values["preset"]), str(values["start"]))
        for name in OF_THE_START:
            self.form.fields[name].editor.setEnabled(not values["start"])

