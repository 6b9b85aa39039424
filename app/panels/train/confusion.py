"""The confusion matrix of the best epoch, whose model is kept; a cell opens its photos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QAbstractItemView, QApplication, QHeaderView, QTableView, QWidget

from app.cards import disease_name
from app.theme import current_theme
from app.translation import tr
from app.viewmodels.runs import RunView
from app.widgets.layouts import TAB, column, holding, stack
from app.widgets.parts import EmptyPlace, label
from core.percent import percent

SHORT: Final = 9
"""Length of a name that needs no second line."""
LONGEST: Final = 260
"""Pixels of the name of a class; longer ones are cut in the middle."""


class ConfusionModel(QStandardItemModel):
    """Counts; the shade of a cell is its share of the true class. Correct and wrong predictions differ in colour."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: tuple[str, ...] = ()
        self.counts: tuple[tuple[int, ...], ...] = ()
        current_theme().changed.connect(self._fill)

    def show_matrix(self, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
        self.classes, self.counts = tuple(classes), tuple(tuple(row) for row in counts)
        self.setRowCount(len(counts))
        self.setColumnCount(len(counts))
        self._fill()

    def _fill(self) -> None:
        names = [disease_name(label) for label in self.classes]
        for truth, counts in enumerate(self.counts):
            label, whole = self.classes[truth], max(sum(counts), 1)
            lines = [shortened(line, LONGEST // 2) for line in two_lines(names[truth])]
            self.setHorizontalHeaderItem(truth, _item("\n".join(lines), label))
            found = tr("{share} of {count} photos found", share=percent(counts[truth] / whole), count=sum(counts))
            self.setVerticalHeaderItem(truth, _item(shortened(names[truth], LONGEST), f"{label}\n{found}"))
            for predicted, count in enumerate(counts):
                text = tr("{count} photos of {truth}, predicted as {predicted}", count=count, truth=names[truth],
                          predicted=names[predicted])  # fmt: skip
                cell = _item(str(count) if count else "", text)
                cell.setTextAlignment(Qt.AlignmentFlag.AlignCenter)
                cell.setAccessibleText(text)
                if count:
                    cell.setBackground(self._shade(count / whole, truth == predicted))
                self.setItem(truth, predicted, cell)

    def _shade(self, share: float, right: bool) -> QColor:
        colour = QColor(current_theme().colours.accent if right else current_theme().colours.danger)
        colour.setAlphaF(0.12 + 0.36 * share)  # the number in it stays legible
        return colour


def _item(text: str, tip: str) -> QStandardItem:
    made = QStandardItem(text)
    made.setToolTip(tip)
    return made


def two_lines(name: str) -> tuple[str, ...]:
    """A name broken at the space nearest to its middle, so that a column needs half the width."""
    spaces = [at for at, letter in enumerate(name) if letter == " "]
    middle = min(spaces, key=lambda at: abs(at - len(name) / 2), default=0)
    return (name[:middle], name[middle + 1 :]) if middle and len(name) >= SHORT else (name,)


def shortened(text: str, pixels: int) -> str:
    """A line of a header, cut in its middle: Qt cuts the end, where it counts without the style sheet's padding."""
    font = QApplication.font()
    font.setBold(True)
    return QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideMiddle, pixels - 24)  # padding of `style.qss`


class ConfusionPane(QWidget):
    """`cell_opened(truth, predicted)`: two class names, by a double click or Enter."""

    cell_opened = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.model = ConfusionModel()
        self.table = QTableView()
        self.table.setModel(self.model)
        self.table.setAccessibleName(tr("Confusion matrix: rows are true classes, columns are predictions"))
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setMinimumSectionSize(46)
        self.table.horizontalHeader().setTextElideMode(Qt.TextElideMode.ElideNone)  # two lines are shortened as one
        self.table.horizontalHeader().setMaximumSectionSize(LONGEST // 2)
        self.table.verticalHeader().setMaximumWidth(LONGEST)
        self.table.verticalHeader().setDefaultSectionSize(30)
        self.table.activated.connect(self._on_activated)
        self._title = label("", "muted", wrap=True)
        hint = tr("Rows are true classes, columns are predictions. Double-click a cell, or press Enter, to see its "
                  "photos.")  # fmt: skip
        empty = EmptyPlace("check", tr("No epoch is finished yet"),
                           tr("After each epoch this table counts the validation photos by true and predicted class."))
        self._matrix = holding(column((self.table, 1), label(hint, "caption", wrap=True)))
        self._stack = stack(empty, holding(column(self._title, (self._matrix, 1), (None, 0))))
        self.setLayout(column(self._stack, margins=TAB))

    def show_run(self, view: RunView) -> None:
        best = view.best_epoch
        if best is None or view.started is None:
            self._stack.setCurrentIndex(0)
            return
        if (view.started.classes, best.confusion) != (self.model.classes, self.model.counts):
            self.model.show_matrix(view.started.classes, best.confusion)
        about = (tr("Best validation accuracy: {share} (epoch {epoch}). The model of this epoch is kept.",
                    epoch=best.epoch + 1, share=percent(best.validation_accuracy)) if best.confusion else
                 tr("Photos with several labels have no confusion matrix. The report lists each label."))  # fmt: skip
        self._title.setText(f"{tr('Run: {name}', name=view.name)}. {about}")
        self._matrix.setVisible(bool(best.confusion))
        self._stack.setCurrentIndex(1)

    def _on_activated(self, index: QModelIndex) -> None:
        self.cell_opened.emit(self.model.classes[index.row()], self.model.classes[index.column()])
