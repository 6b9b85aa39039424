"""How a model leaves for other programs: as ONNX in float32, or in eight bits where photos are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import final

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QButtonGroup, QDialog, QRadioButton, QSizePolicy, QVBoxLayout, QWidget

from app.translation import tr
from app.widgets.parts import button, label, row

CONFIG = "config.json"
"""In the folder of a run, whose own photos then serve for eight bits."""
WIDTH = 480


def photos_for(model: str, opened: str) -> tuple[str, str]:
    """The model as `core.export` is to be told of it (a run's folder where it lies in one), and the photos for eight
    bits: "" where the run has its own, or where there are none."""
    run = Path(model).parent
    own = Path(model).name == "best.safetensors" and (run / CONFIG).is_file()
    return (str(run), "") if own else (model, opened)


@final
class ModelExportDialog(QDialog):
    """Signal: `chosen(eight bits)`; where the file goes is asked next."""

    chosen = Signal(bool)

    def __init__(self, parent: QWidget, model: str, opened: str) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Export the model"))
        run, photos = photos_for(model, opened)
        possible = bool(photos) or run != model
        self.float32 = QRadioButton(tr("Float32: the same answers"))
        self.eight = QRadioButton(tr("Eight bits: a quarter of the size"))
        self.eight.setEnabled(possible)
        self.float32.setChecked(True)
        group = QButtonGroup(self)
        layout = QVBoxLayout(self)
        layout.setSpacing(8)
        about = tr("One ONNX file for other programs: the network, the names of the classes, how a photo is prepared, "
                   "the temperature and the thresholds.")  # fmt: skip
        layout.addWidget(label(about, "muted", wrap=True))
        cost = tr("The ranges of its numbers are measured on the model's photos, and so is what that costs in "
                  "accuracy. This takes some minutes.")  # fmt: skip
        none = tr("This needs photos: open those that the model was trained with under Dataset.")
        held = tr("Held against onnxruntime, where that is installed.")
        for choice, text in ((self.float32, held), (self.eight, cost if possible else none)):
            group.addButton(choice)
            layout.addWidget(choice)
            under = label(text, "caption", wrap=True)
            under.setContentsMargins(24, 0, 0, 4)
            under.setMinimumHeight(under.heightForWidth(WIDTH - 60))
            under.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
            choice.setAccessibleDescription(text)
            layout.addWidget(under)
        layout.addStretch(1)
        export = button(tr("Export…"), self._on_export, "primary")
        export.setDefault(True)
        layout.addLayout(row(None, button(tr("Cancel"), self.reject), export))
        self.setFixedWidth(WIDTH)

    def _on_export(self) -> None:
        self.accept()
        self.chosen.emit(self.eight.isChecked())
