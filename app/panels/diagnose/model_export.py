"""Exports a model as ONNX: in float32, or in 8 bits if photos are available."""

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
    """The model for `core.export` (its run folder, if it is in one), and the photos for 8 bits.

    The photos are "" if the run has its own, or if there are none.
    """
    run = Path(model).parent
    own = Path(model).name == "best.safetensors" and (run / CONFIG).is_file()
    return (str(run), "") if own else (model, opened)


@final
class ModelExportDialog(QDialog):
    """Signal: `chosen(eight bits)`; the file is asked for next."""

    chosen = Signal(bool)

    def __init__(self, parent: QWidget, model: str, opened: str) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Export the model"))
        run, photos = photos_for(model, opened)
        possible = bool(photos) or run != model
        self.float32 = QRadioButton(tr("Float32: same predictions"))
        self.eight = QRadioButton(tr("8 bits: a quarter of the size"))
        self.eight.setEnabled(possible)
        self.float32.setChecked(True)
        group = QButtonGroup(self)
        layout = QVBoxLayout(self)
        layout.setSpacing(8)
        about = tr("One ONNX file for other programs, with the network, class names, preprocessing, temperature and "
                   "thresholds.")  # fmt: skip
        layout.addWidget(label(about, "muted", wrap=True))
        cost = tr("Measures activation ranges and the loss of accuracy on the model's photos. This takes a few "
                  "minutes.")  # fmt: skip
        none = tr("This needs photos. Under Dataset, open the photos that the model was trained on.")
        held = tr("The file is checked with onnxruntime if it is installed.")
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
