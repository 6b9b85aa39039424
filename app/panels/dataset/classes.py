"""The classes with their photo counts: a selection shows only their photos; rename with F2 or a double click."""

from __future__ import annotations

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QSignalBlocker, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QInputDialog, QWidget

from app.cards import disease_name, find_class
from app.project import EditedDataset
from app.translation import tr
from app.viewmodels.row_order import Column
from app.viewmodels.rows_model import ROW, RowsModel
from app.widgets.bars import BarDelegate
from app.widgets.layouts import TAB, column, row
from app.widgets.parts import button, label
from app.widgets.table_view import Table

FEW = 20
"""Photos below which a class can hardly be learned or measured."""
NAMED = 3
"""Such classes that are named; the others are counted."""


class ClassesPane(QWidget):
    """`chosen(list)`: class names to show (empty: all); `renamed(old, new)`."""

    chosen = Signal(list)
    renamed = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.model = RowsModel([
            Column(tr("Class"), lambda c: disease_name(c[0]), tip=lambda c: c[0]),
            Column(tr("Photos"), lambda c: f"{c[1]:,}", lambda c: c[1]),
        ], self)  # fmt: skip
        self.table = Table(self.model, tr("Classes"), several=True)
        self._bars = BarDelegate(self.table, 1)
        self.table.selectionModel().selectionChanged.connect(lambda *_: self._on_selection())
        self.table.doubleClicked.connect(lambda _: self._on_rename())
        QShortcut(QKeySequence("F2"), self.table, self._on_rename)
        self.balance = label("", "muted", wrap=True)
        self._rename = button(tr("Rename…"), self._on_rename, tip=tr("Rename the selected class (F2)"))
        self._all = button(tr("Show all"), self.table.clearSelection, "flat")
        self.setLayout(column(self.balance, (self.table, 1), row(self._rename, None, self._all), margins=TAB))
        self._on_selection()

    def _on_selection(self) -> None:
        names = self.selected()
        self._rename.setEnabled(len(names) == 1)
        self._all.setEnabled(bool(names))
        self.chosen.emit(names)

    def show_table(self, table: EditedDataset) -> None:
        """Show the counts of the photos in use, without classes that no photo has any more."""
        before = self.selected()
        counts = dict(zip(table.classes, table.counts().tolist(), strict=True))
        rows = [(name, counts[name]) for name in table.named()]
        self._bars.highest = float(max((n for _, n in rows), default=1))
        if self.model.rows != sorted(rows):
            self.model.show_rows(sorted(rows))
            self._select(before)
        self.balance.setText(balance_text(rows))
        if before != self.selected():
            self._on_selection()

    def selected(self) -> list[str]:
        return [name for name, _ in self.table.selected_rows()]

    def _select(self, names: list[str]) -> None:
        """Select these classes, if they still exist, without a signal."""
        selection, view = QItemSelection(), self.table.model()
        for index in (view.index(at, 0) for at in range(view.rowCount())):
            if index.data(ROW)[0] in names:
                selection.select(index, index)
        with QSignalBlocker(self):
            flags = QItemSelectionModel.SelectionFlag
            self.table.selectionModel().select(selection, flags.ClearAndSelect | flags.Rows)

    def _on_rename(self) -> None:
        names = self.selected()
        if len(names) == 1:
            text = tr("New name of “{name}” (an existing name merges the two classes):", name=names[0])
            new, fine = QInputDialog.getText(self, tr("Rename class"), text, text=names[0])
            if fine and new.strip():
                self.renamed.emit(names[0], new)
                self._select([find_class(new, (name for name, _ in self.model.rows))])
                self.chosen.emit(self.selected())


def balance_text(rows: list[tuple[str, int]]) -> str:
    """What the counts mean for training, as a sentence."""
    used = sorted(n for _, n in rows if n)
    if len(used) < 2:
        return tr("Training needs two classes or more.")
    few = [disease_name(name) for name, n in rows if 0 < n < FEW]
    if few:
        names = ", ".join(few[:NAMED]) + f" (+{len(few) - NAMED})" * (len(few) > NAMED)
        return tr("Very few photos: {names}. Results for these classes are not reliable.", names=names)
    ratio = used[-1] / used[0]
    if ratio > 3:
        return tr("The largest class has {ratio} times as many photos as the smallest. Set “Sampling” to balanced.",
                  ratio=f"{ratio:.1f}")  # fmt: skip
    return tr("The classes are balanced.")
