"""The Diagnose page: results appear one by one; the window never waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from app.actions import Actions
from app.mask import Mask
from app.panels.diagnose.brush import BrushDialog
from app.panels.diagnose.coverage import CoverageBar, crop_choice, plant_choice
from app.panels.diagnose.detail import DetailPane
from app.panels.diagnose.start_page import StartPage
from app.paths import Settings
from app.translation import count, tr
from app.viewmodels.diagnosis import DiagnosisModel
from app.viewmodels.result import PLANT, PhotoResult, plant_text, verdict_text
from app.viewmodels.thumbnails import Thumbnails
from app.viewmodels.writing import Writing
from app.widgets.fields import SearchField
from app.widgets.layouts import GAP, PAGE, Flow, column, holding, row, stack
from app.widgets.notice import Notice, PreparationBar, follow_writing
from app.widgets.parts import Slot, action_button, ask_target, button, header, label, progress_bar
from app.widgets.photo_view import PhotoDialog
from app.widgets.table_view import Table
from core.diagnosis.model_identity import unnamed
from core.errors import LeafClinicError

SETTLE_MS: Final = 60
"""Delay before the selected photo is decoded, so that moving through the table decodes only the last one."""
FRAME_MS: Final = 16
"""One frame of a display."""


class DiagnosePanel(QWidget):
    """The results in a table, with the selected photo enlarged above it."""

    def __init__(
        self, model: DiagnosisModel, actions: Actions, settings: Settings, photos: Thumbnails, writing: Writing
    ) -> None:
        super().__init__()
        self._model, self._actions, self._photos, self._writing = model, actions, photos, writing
        self.notice = Notice()
        self.preparation = PreparationBar()
        follow_writing(self.notice, writing)
        self._all = ""  # the summary of all results, filtered or not
        self._newest = -1  # row of a new photo that is not shown yet
        self.detail = DetailPane(photos)
        self.coverage = CoverageBar(model, settings)
        self.table = Table(model.rows, tr("Results"), several=True)
        self.table.horizontalHeader().setMinimumSectionSize(120)
        self.table.setMinimumHeight(4 * self.table.verticalHeader().defaultSectionSize())  # header and two photos
        self.known_crop = crop_choice(model)
        self.plants = plant_choice(model.plants, self.table, self._remove)
        self.search = SearchField(tr("Filter by name or diagnosis"), tr("Filter the results"))
        self.search.setMinimumWidth(190)
        self.bar = progress_bar(tr("Progress of the diagnoses"))
        self.state = label("", "muted", wrap=True)
        self.cancel = button(tr("Cancel"), model.cancel)
        self.rest = button(tr("Resume"), model.diagnose_cancelled, tip=tr("Diagnose the photos that were cancelled"))
        self.model_button = QPushButton()
        self.model_button.clicked.connect(actions.choose_model.trigger)
        self._settle = QTimer(self, singleShot=True, interval=SETTLE_MS)
        self._settle.timeout.connect(self._show_selected)
        self._lay_out()
        self._connect()
        self._on_model(model.model_path)
        self._on_busy(*model.progress)

    def _lay_out(self) -> None:
        actions = self._actions
        self._exports = (actions.export_csv, actions.export_html, actions.export_pdf)
        export, menu = QPushButton(tr("Export…")), QMenu(self, toolTipsVisible=True)
        menu.addActions(self._exports)
        export.setMenu(menu)
        tip = tr("Remove all results from the list; the photo files are kept")
        clear = button(tr("Clear"), lambda: self._remove(self._model.rows.present), "flat", tip)
        box = holding(column(None, self.state, self.bar, None, spacing=4))
        tools = Flow(self.search, self.known_crop, self.plants, box, self.cancel, self.rest, export, clear, fill=[box])
        below = column(self.coverage, tools, (self.table, 1), spacing=8)
        self.start = StartPage(actions)
        self.start.show_classes(self._model.known)
        self.stack = stack(self.start, holding(column((self.detail, 5), (below, 4), spacing=GAP)))
        self.add = holding(row(action_button(actions.diagnose_photos, "add")))
        head = header(tr("Diagnose"), tr("What is wrong with these leaves?"), self.model_button, self.add)
        self.setLayout(column(head, self.notice, self.preparation, (self.stack, 1), spacing=GAP, margins=PAGE))

    def _connect(self) -> None:
        model = self._model
        model.model_ready.connect(self._on_model)
        model.loading.connect(self._on_loading)
        model.stage.connect(self._on_stage)
        model.failed.connect(self.notice.alarm)
        model.ended.connect(self.preparation.hide)
        model.ended.connect(self.start.known.clear)  # a model that cannot be read is not being loaded any more
        model.result.connect(self._on_result)
        model.busy.connect(self._on_busy)
        model.verdicts.changed.connect(self._on_verdicts)
        model.plants.changed.connect(self._on_plants)
        model.plants.changes.indexChanged.connect(self._on_change)
        self._writing.written.connect(self._on_written)
        self.detail.correct_asked.connect(self._on_correct)
        self.detail.photo.opened.connect(self._on_large)
        self.detail.map_asked.connect(lambda label: model.request_map(self.detail.shown, label))
        self.table.activated.connect(lambda _: self._on_large())
        model.brought.connect(self._on_brought)
        for counted in (model.rows.rowsInserted, model.rows.modelReset):
            counted.connect(self._on_rows)
            counted.connect(self._on_scope)
        for reshown in (model.rows.rowsInserted, model.rows.narrowed, model.rows.layoutChanged):
            # after the table has restored its own position
            reshown.connect(Slot(self, lambda *_: self._show_newest()).call)
        self.search.textChanged.connect(model.rows.set_filter)
        self.table.selectionModel().currentChanged.connect(lambda *_: self._settle.start())
        for kind, title in (("csv", tr("Export results")), ("html", tr("Export report")), ("pdf", tr("Export report"))):
            action = getattr(self._actions, f"export_{kind}")
            action.triggered.connect(Slot(self, partial(self._export, kind, title)).call)
        self._on_rows()
        self._on_plants()

    def _on_loading(self) -> None:
        self.notice.hide_alarm()  # of the previous model
        self.start.show_classes(self._model.known)
        self._on_model(self._model.model_path)
        self.preparation.show_progress(0, 0)

    def _on_stage(self, _stage: str, done: int, total: int) -> None:
        self.preparation.show_progress(done, total)
        self.detail.show_waiting(done < total)

    def _on_model(self, path: str) -> None:
        name = self._model.model.name or unnamed(Path(path))
        self.model_button.setText(tr("Model: {name}", name=name) if path else tr("Choose the model"))
        if self.detail.shown is not None:
            self._show(self.detail.shown)  # class maps can be asked for only while the model is loaded
        self.detail.show_waiting(not self._model.ready)
        self.model_button.setToolTip(path)
        self._on_rows()

    def _on_rows(self) -> None:
        some = len(self._model.rows.rows) > len(self._model.rows.removed)
        self.stack.setCurrentIndex(int(some))
        self.add.setVisible(some)  # the start page has this button
        for action in self._exports:
            action.setEnabled(some)
        if some and not self.table.currentIndex().isValid():
            self.table.selectRow(0)

    def _on_brought(self, first: int, known: int) -> None:
        self._newest = first
        self._on_rows()  # a filter may not let the new rows pass
        self._show_newest()
        if self._model.ready:
            self.notice.hide_alarm()
        if known:
            self.notice.show_message(count(known, "{n} of these photos is already diagnosed and was skipped.",
                                   "{n} of these photos are already diagnosed and were skipped."))  # fmt: skip

    def _show_newest(self) -> None:
        row = self._model.rows.row_of(self._newest) if self._newest >= 0 else -1
        if 0 <= row < self._model.rows.rowCount():
            self._newest = -1
            self.table.selectRow(row)
            self.table.scrollTo(self.table.currentIndex())

    def _on_result(self, result: PhotoResult) -> None:
        if self.detail.shown is not None and self.detail.shown.id == result.id:
            self._show(result)

    def _on_verdicts(self) -> None:
        self._show_selected()
        # after the table is drawn: counting 100,000 rows takes longer than a frame
        QTimer.singleShot(FRAME_MS, self, lambda: self._on_busy(*self._model.progress))

    def _on_correct(self) -> None:
        result = self.detail.shown
        area = result.area() if result is not None else None
        if result is not None and area is not None:
            automatic = replace(result, mask=None).area() or area
            dialog = BrushDialog(self, self._photos, result.path, area, area if result.mask is None else automatic)
            dialog.corrected.connect(lambda mask: self._keep(result, mask))
            dialog.open()

    def _on_large(self) -> None:
        """Show the selected photo without overlays, as large as the screen allows."""
        result: PhotoResult | None = self.table.selected()
        if result is not None:
            PhotoDialog(self, self._photos, result.path, verdict_text(result)).open()

    def _keep(self, result: PhotoResult, mask: Mask | None) -> None:
        try:
            self._model.correct(result, mask)
        except (LeafClinicError, OSError) as error:
            self.notice.alarm(str(error))

    def _on_busy(self, waiting: int, total: int) -> None:
        shown, rows = self.detail.shown, self._model.rows.rows
        if shown is not None and shown.id < len(rows) and rows[shown.id] is not shown:  # cancelled, or waiting again
            self._show(rows[shown.id])
        self.bar.setVisible(waiting > 0)
        self.cancel.setVisible(waiting > 0)
        self.rest.hide()
        self.bar.setMaximum(max(total, 1))
        self.bar.setValue(total - waiting)
        if waiting:  # reported for every photo; the rows are counted once, at the end
            self.state.setText(tr("{done} of {total} done", done=f"{total - waiting:,}", total=f"{total:,}"))
            return
        self._on_rows()  # a filter may not let restored rows pass
        present = self._model.rows.present
        kinds = Counter("failed" if row.error else "cancelled" if row.cancelled
                        else "unsure" if row.done and not row.sure else "" for row in present)  # fmt: skip
        unsure, failed, cancelled = (kinds[kind] for kind in ("unsure", "failed", "cancelled"))
        done = count(len(present), "{n} photo", "{n} photos")
        rest = ((unsure, tr("{n} not diagnosed", n=f"{unsure:,}")), (failed, tr("{n} unreadable", n=f"{failed:,}")),
                (cancelled, tr("{n} cancelled", n=f"{cancelled:,}")))  # fmt: skip
        self.rest.setVisible(cancelled > 0)
        self._all = ", ".join([done, *(text for many, text in rest if many)])
        self._on_scope()

    def _on_scope(self) -> None:
        """Show which results pass the filter and would be exported."""
        if not self._model.working:
            self.state.setText(self._scope() if self.search.text().strip() else self._all)

    def _scope(self) -> str:
        """How many of the results pass the filter; photos that wait or were cancelled have none, and no export."""
        rows = self._model.rows
        total = sum(row.done for row in rows.present)
        if not self.search.text().strip():  # new rows are shown a moment later
            return count(total, "{n} result", "{n} results")
        shown = sum(rows.rows[rows.place(at)].done for at in range(rows.rowCount()))
        return tr("{shown} of {total} results", shown=f"{shown:,}", total=f"{total:,}")

    def _show_selected(self) -> None:
        shown = self.detail.shown  # stays where a filter lets none pass
        self._show(self.table.selected() or (shown and self._model.rows.rows[shown.id]))

    def _on_plants(self) -> None:
        self.table.setColumnHidden(PLANT, not self._model.plants.found)
        if self.detail.shown is not None:
            self._show_plant(self.detail.shown)

    def _show_plant(self, result: PhotoResult) -> None:
        plant = self._model.plants.of(result)
        self.detail.plant.setText(tr("Plant {plant}", plant=plant_text(plant)) if plant else "")
        self.detail.plant.setVisible(plant is not None)

    def _show(self, result: PhotoResult | None) -> None:
        self.detail.show_result(result, self._model.verdicts.threshold, self._model.has_maps(result))
        if result is not None:
            self._show_plant(result)

    def _remove(self, rows: Sequence[PhotoResult]) -> None:
        if not rows:  # Del without a selection must not replace the Undo of an earlier one
            return
        at, changes = self.table.currentIndex().row(), self._model.plants.changes
        self._newest = -1
        self.detail.show_result(None)
        self._model.remove(rows)
        self.table.selectRow(min(at, self._model.rows.rowCount() - 1))
        removed = count(len(rows), "{n} result removed.", "{n} results removed.")
        self.notice.show_message(removed, tr("Undo"), changes.undo)

    def _on_change(self) -> None:
        """Hide the offer to undo a removal that is not the last change any more."""
        if self.notice.do.text() == tr("Undo"):
            self.notice.hide()

    def _export(self, kind: str, title: str, *_: object) -> None:
        kinds = f"{kind.upper()} (*.{kind})"
        chosen = ask_target(self, f"{title}: {self._scope()}", f"diagnoses.{kind}", kinds)
        if chosen:
            rows = self._model.plants.with_plants(self._model.rows.shown_rows())
            crop = [self.known_crop.currentText()] if self._model.verdicts.known_crop else []
            self._model.exporting[chosen] = self._model.contents(rows)
            self._writing.start(kind, chosen, rows, remarks=[*crop, self.coverage.slider.accessibleDescription()])

    def _on_written(self, answer: dict[str, Any]) -> None:
        self._model.exported |= self._model.exporting.pop(answer["written"], set())
