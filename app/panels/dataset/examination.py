"""What the check of the photos found: problems by kind, and the split with its data leakage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.cards import disease_name
from app.translation import count, sentence, tr
from app.viewmodels.examination import ExaminationModel
from app.viewmodels.row_order import Column
from app.viewmodels.rows_model import RowsModel
from app.widgets.layouts import TAB, column, row
from app.widgets.notice import follow_stages
from app.widgets.parts import button, label, progress_bar
from app.widgets.table_view import Table
from core.percent import percent


class HealthPane(QWidget):
    """`opened(rows, name)`: show the photos of a finding."""

    opened = Signal(object, str)

    def __init__(self, examination: ExaminationModel, settings: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._examination = examination
        self.model = RowsModel([
            Column(tr("Finding"), lambda k: tr(k[0])),
            Column(tr("Photos"), lambda k: f"{k[1]:,}", lambda k: k[1], right=True),
        ], self)  # fmt: skip
        self.table = Table(self.model, tr("Findings"), stretch=0)
        self.table.selectionModel().selectionChanged.connect(lambda *_: self.show_chosen())
        self.table.clicked.connect(lambda _: self.show_chosen())  # again, after a filter has shown others
        self.state = label("", "muted", wrap=True)
        self.bar = progress_bar(tr("Progress of the check"))
        self.check = button(tr("Check photos"), lambda: examination.start(settings()), "primary")
        self.stop = button(tr("Cancel"), examination.cancel)
        self.advice = label("", "muted", wrap=True)
        self.setLayout(column(
            self.state, self.bar, row(self.check, self.stop, None), (self.table, 1), self.advice,
            (None, 0), margins=TAB,  # fills the space while there is no table
        ))  # fmt: skip
        follow_stages(examination, self.bar, self.state)
        examination.changed.connect(self.refresh)
        examination.ended.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        busy, found, known = self._examination.has_process, self._examination.found, self._examination.kinds
        for widget, of_work in ((self.bar, True), (self.check, False), (self.stop, True)):
            widget.setVisible(busy == of_work)
        rows = []
        for kind, meaning in known.items():
            findings = [finding for finding in found if finding.kind == kind]
            photos = {row for finding in findings for row in finding.rows}  # one photo may be in two findings
            if findings:
                unlisted = sum(not finding.rows for finding in findings)  # such as HEIC files
                rows.append((meaning, len(photos) + unlisted, kind))
        if rows != self.model.rows:
            self.model.show_rows(rows)
            self.advice.setText("")
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

    def show_chosen(self) -> None:
        """Show the photos of the selected line. The current one may only have the keyboard focus."""
        if not (chosen := self.table.selected_rows()):
            return
        meaning, _, kind = chosen[0]
        found = [f for f in self._examination.found if f.kind == kind]
        rows = np.array(list(dict.fromkeys(row for f in found for row in f.rows)), np.int64)
        advice = sentence(found[0].message)
        self.advice.setText(advice if len(found) == 1 else tr("For example: {text}", text=advice))
        if len(rows):
            self.opened.emit(rows, tr(meaning) + " (" + count(len(found), "{n} finding", "{n} findings") + ")")


class SplitPane(QWidget):
    """Photos per class and split as the check computed them; training makes the same split."""

    def __init__(self, examination: ExaminationModel) -> None:
        super().__init__()
        self._examination = examination
        self.text = label("", "muted", wrap=True)
        self.model = RowsModel([
            Column(tr("Class"), lambda c: disease_name(c[0]), tip=lambda c: c[0]),
            Column(tr("train"), lambda c: f"{c[1]:,}", lambda c: c[1], right=True,
                   help=tr("Photos that the network is trained on")),
            Column(tr("valid."), lambda c: f"{c[2]:,}", lambda c: c[2], right=True,
                   help=tr("Validation photos: they choose the best epoch")),
            Column(tr("test"), lambda c: f"{c[3]:,}", lambda c: c[3], right=True,
                   help=tr("Test photos: used once, for the final accuracy")),
        ], self)  # fmt: skip
        self.table = Table(self.model, tr("Split"), stretch=0)
        self.table.horizontalHeader().setMinimumSectionSize(4 * self.fontMetrics().height())  # large fonts keep names
        self.setLayout(column(self.text, (self.table, 1), (None, 0), margins=TAB))
        examination.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        split = self._examination.split
        self.table.setVisible(bool(split))
        if not split:
            self.text.setText(tr("Press “Check photos” under Quality. Photos of the same leaf and duplicates are then "
                                 "grouped, and each group stays in one split."))  # fmt: skip
            return
        leaked, random = (percent(split[name] / max(split["held_out"], 1)) for name in ("leaked", "random_leaked"))
        self.text.setText(tr(
            "{leaked} of the validation and test photos show the same leaf or session as a photo of another split "
            "(data leakage: measured accuracy is too high); in a random split {random}. {photos} photos: {groups}.",
            leaked=leaked, random=random, photos=f"{split['photos']:,}",
            groups=count(split["groups"], "{n} group", "{n} groups"),
        ))  # fmt: skip
        counts = split["counts"]
        self.model.show_rows(list(zip(split["classes"], counts["train"], counts["val"], counts["test"], strict=True)))
