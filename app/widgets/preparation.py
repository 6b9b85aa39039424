"""The progress of preparing a model, with the estimated time left."""

from __future__ import annotations

import time
from typing import final

from PySide6.QtWidgets import QProgressBar, QWidget

from app.translation import tr
from app.widgets.parts import label, row


@final
class PreparationBar(QWidget):
    """Hidden unless something takes seconds to prepare."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0.0
        self.text = label("", "muted")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setFixedWidth(180)
        self.bar.setAccessibleName(tr("Progress of the preparation"))
        self.setLayout(row(self.bar, self.text, None, spacing=10))
        self.hide()

    def show_progress(self, done: int, total: int) -> None:
        """Show `done` of `total` kernels of the model; hides the bar when all are done."""
        if done == 0:
            self._begun = time.monotonic()
        self.setVisible(done < total)
        self.bar.setMaximum(total)
        self.bar.setValue(done)
        text = tr("Preparing the model for this computer (first time only): step {step} of {steps}.",
                  step=min(done + 1, total), steps=total)  # fmt: skip
        if done:
            left = (time.monotonic() - self._begun) * (total - done) / done
            text += " " + tr("About {seconds} s left.", seconds=max(round(left), 1))
        self.text.setText(text)
