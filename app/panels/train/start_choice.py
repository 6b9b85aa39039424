"""The switch between training from the pretrained leaf model and training from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QPushButton, QVBoxLayout, QWidget

from app.translation import tr
from app.widgets.parts import label, row
from core.training.presets import PRESETS

TRANSFER: Final = "transfer"
DEMO: Final = "demo"
SCRATCH: Final = {"cpu": "tomato-cpu", "cuda": "gpu"}
"""Preset for learning from nothing on each device."""


def presets(model: str) -> Mapping[str, Mapping[str, Any]]:
    """The presets of the form: `transfer` with the pretrained model and its photo size."""
    values = {name: dict(preset.values) for name, preset in PRESETS.items()}
    if model:
        values[TRANSFER] |= {"start": model, **_of_file(model)}
    else:
        values.pop(TRANSFER)
    return values


def _of_file(model: str) -> dict[str, Any]:
    """Network and photo size of a model file, which a run that starts from it uses."""
    from core.diagnosis.model_file import read_model
    from core.errors import LeafClinicError

    try:
        graph = read_model(Path(model)).graph
    except LeafClinicError:
        return {}
    return {"model": graph.name, "image_size": graph.photo_shape[0]}


@final
class StartChoice(QWidget):
    """Signal: `chosen(preset)`."""

    chosen = Signal(str)

    def __init__(self, transfer: bool) -> None:
        super().__init__()
        self.device = "cpu"
        self._group = QButtonGroup(self)
        buttons: list[QWidget] = []
        for name, text in ((True, tr("Pretrained leaf model")), (False, tr("From scratch"))):
            made = QPushButton(text)
            made.setCheckable(True)
            made.setAutoExclusive(True)
            made.setProperty("role", "switch")
            made.setObjectName("start_learned" if name else "start_scratch")
            self._group.addButton(made, int(name))
            buttons.append(made)
        self._group.idClicked.connect(lambda which: self.chosen.emit(self.preset(bool(which))))
        self.caption = label("", "caption", wrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 2, 8, 4)
        layout.setSpacing(6)
        layout.addLayout(row(*buttons, None, spacing=0))
        layout.addWidget(self.caption)
        if not transfer:
            self.hide()

    def preset(self, learned: bool) -> str:
        """The preset of a side of the switch on this device."""
        return TRANSFER if learned else SCRATCH[self.device]

    def show_start(self, preset: str, start: str) -> None:
        """Follow the form, where both can be set directly."""
        learned = bool(start)
        self._group.button(int(learned)).setChecked(True)
        if preset == DEMO:
            text = tr("Training on the synthetic leaves starts from scratch and takes about a minute.")
        elif learned:
            text = tr("Starts from a network trained on leaves ({name}). For small datasets: 50 photos per class, a "
                      "few minutes.", name=Path(start).stem)  # fmt: skip
        else:
            text = tr("Trains on your photos only. Needs several hundred photos per class and more time.")
        self.caption.setText(text)
