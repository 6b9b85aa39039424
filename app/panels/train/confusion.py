"""The confusion matrix of the best epoch, whose model is kept; a cell opens its photos."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QModelIndex, Signal
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QStackedWidget, QTableView, QVBoxLayout, QWidget

from app.theme import Theme
from app.translation import tr
from app.viewmodels.confusion import ConfusionModel
from app.viewmodels.run_view import RunView
from app.widgets.parts import EmptyPlace, label
from core.percent import percent


@final
class ConfusionPane(QWidget):
    """`cell_opened(truth, predicted)`: two class names, by a double click or Enter."""

    cell_opened = Signal(str, str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.model = ConfusionModel(theme)
        self.table = QTableView()
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Confusion matrix: rows are true classes, columns are predictions"))
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setMinimumSectionSize(46)
        self.table.verticalHeader().setDefaultSectionSize(30)
        self.table.activated.connect(self._on_activated)
        self._title = label("", "muted")
        inside = QWidget()
        inner = QVBoxLayout(inside)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.addWidget(self._title)
        inner.addWidget(self.table, 1)
        hint = tr("Rows are true classes, columns are predictions. Double-click a cell, or press Enter, to see its "
                  "photos.")  # fmt: skip
        inner.addWidget(label(hint, "caption", wrap=True))
        self._stack = QStackedWidget()
        self._stack.addWidget(EmptyPlace(theme, "check", tr("No epoch is finished yet"),
                                         tr("After each epoch this table counts the validation photos by true and "
                                            "predicted class.")))  # fmt: skip
        self._stack.addWidget(inside)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 0)
        layout.addWidget(self._stack)
        theme.changed.connect(self.table.viewport().update)

    def show_run(self, view: RunView) -> None:
        best = view.best_epoch
        if best is None or view.started is None:
            self._stack.setCurrentIndex(0)
            return
        if best.confusion != self.model.counts:
            self.model.show_matrix(view.started.classes, best.confusion)
        self._title.setText(tr("Best validation accuracy: {share} (epoch {epoch}). The model of this epoch is kept.",
                               epoch=best.epoch + 1, share=percent(best.validation_accuracy)) if best.confusion else
                            tr("Photos with several labels have no confusion matrix. The report lists each label."))
        self._stack.setCurrentIndex(1)

    def _on_activated(self, index: QModelIndex) -> None:
        self.cell_opened.emit(self.model.classes[index.row()], self.model.classes[index.column()])
