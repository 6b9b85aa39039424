"""Problems of the photos: counts by kind; opening a kind shows its photos in the grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from app.theme import Theme
from app.translation import count, sentence, tr
from app.viewmodels.examination import ExaminationModel
from app.viewmodels.rows_model import ROW, Column, RowsModel
from app.widgets.parts import button, label, row
from app.widgets.table_view import sorted_view
from app.wording import stage_text


@final
class HealthPane(QWidget):
    """`opened(rows, name)`: show the photos of a finding."""

    opened = Signal(object, str)

    def __init__(self, theme: Theme, examination: ExaminationModel, settings: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._examination, self._settings = examination, settings
        self.model = RowsModel([
            Column(tr("Finding"), lambda k: tr(k[0])),
            Column(tr("Photos"), lambda k: f"{k[1]:,}", lambda k: k[1], right=True),
        ], self)  # fmt: skip
        self.table = sorted_view(self.model, tr("Findings"), stretch=0)
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._on_chosen())
        self.state = label("", "muted", wrap=True)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(tr("Progress of the check"))
        self.check = button(tr("Check photos"), self.start, "primary")
        self.stop = button(tr("Cancel"), examination.cancel)
        self.advice = label("", "muted", wrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.addWidget(self.state)
        layout.addWidget(self.bar)
        layout.addLayout(row(self.check, self.stop, None))
        layout.addWidget(self.table, 1)
        layout.addWidget(self.advice)
        layout.addStretch(0)  # fills the space while there is no table
        examination.progress.connect(self._on_progress)
        examination.changed.connect(self.refresh)
        examination.ended.connect(self.refresh)
        self.refresh()

    def start(self) -> None:
        self._examination.start(self._settings())
        self.refresh()

    def refresh(self) -> None:
        """Update the list."""
        busy, found, known = self._examination.has_process, self._examination.found, self._examination.kinds
        self.bar.setVisible(busy)
        self.stop.setVisible(busy)
        self.check.setVisible(not busy)
        rows = []
        for kind, meaning in known.items():
            findings = [finding for finding in found if finding.kind == kind]
            photos = {row for finding in findings for row in finding.rows}  # one photo may be in two findings
            if findings:
                rows.append((meaning, len(photos) or len(findings), kind))
        if rows != self.model.rows:
            self.model.show_rows(rows)
        self.table.setVisible(bool(rows))
        self.advice.setVisible(bool(rows))
        if busy:
            return
        if not known:
            self.state.setText(tr("Checks every photo for problems: unreadable, duplicate, blurred, dark or tiny. "
                                  "Training then starts sooner, because the photos are already decoded."))  # fmt: skip
        elif rows:
            self.state.setText(tr("Choose a line to see its photos."))
        else:
            self.state.setText(tr("No problems were found."))

    def _on_progress(self, stage: str, done: int, total: int) -> None:
        self.bar.setRange(0, total)
        self.bar.setValue(done)
        self.state.setText(stage_text(stage, done, total))

    def _on_chosen(self) -> None:
        index = self.table.currentIndex()
        if not index.isValid():
            return
        meaning, _, kind = index.data(ROW)
        found = [f for f in self._examination.found if f.kind == kind]
        rows = np.array(list(dict.fromkeys(row for f in found for row in f.rows)), np.int64)
        advice = sentence(found[0].message)
        self.advice.setText(advice if len(found) == 1 else tr("For example: {text}", text=advice))
        if len(rows):
            self.opened.emit(rows, tr(meaning) + " (" + count(len(found), "{n} finding", "{n} findings") + ")")
