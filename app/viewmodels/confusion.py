"""The confusion matrix of an epoch as a table: rows are true classes, columns are predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QColor

from app.cards import disease_name
from app.theme import Theme
from app.translation import tr
from core.percent import percent

NOWHERE = QModelIndex()
SHORT: Final = 9
"""Letters that need no second line."""


@final
class ConfusionModel(QAbstractTableModel):
    """Counts; the shade of a cell is its share of the true class. Correct and wrong predictions differ in colour."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.classes: tuple[str, ...] = ()
        self.counts: tuple[tuple[int, ...], ...] = ()

    def show_matrix(self, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
        same = tuple(classes) == self.classes and len(counts) == len(self.counts)
        if not same:
            self.beginResetModel()
        self.classes, self.counts = tuple(classes), tuple(tuple(row) for row in counts)
        if not same:
            self.endResetModel()
        elif counts:
            self.dataChanged.emit(self.index(0, 0), self.index(len(counts) - 1, len(counts) - 1))

    def rowCount(self, parent: QModelIndex = NOWHERE) -> int:  # noqa: N802 (Qt's names here and below)
        return 0 if parent.isValid() else len(self.counts)

    def columnCount(self, parent: QModelIndex = NOWHERE) -> int:  # noqa: N802
        return self.rowCount(parent)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:  # noqa: N802
        if section >= len(self.classes):
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            name = disease_name(self.classes[section])
            return two_lines(name) if orientation == Qt.Orientation.Horizontal else name
        if role == Qt.ItemDataRole.ToolTipRole:
            label = self.classes[section]
            return f"{label}\n{self._recall(section)}" if orientation == Qt.Orientation.Vertical else label
        return None

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        truth, predicted = index.row(), index.column()
        count = self.counts[truth][predicted]
        share = count / max(sum(self.counts[truth]), 1)
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return str(count) if count else ""
            case Qt.ItemDataRole.TextAlignmentRole:
                return Qt.AlignmentFlag.AlignCenter
            case Qt.ItemDataRole.BackgroundRole:
                return self._shade(share, truth == predicted) if count else None
            case Qt.ItemDataRole.ToolTipRole | Qt.ItemDataRole.AccessibleTextRole:
                names = disease_name(self.classes[truth]), disease_name(self.classes[predicted])
                text = tr("{count} photos of {truth}, predicted as {predicted}")
                return text.format(count=count, truth=names[0], predicted=names[1])
        return None

    def _shade(self, share: float, right: bool) -> QColor:
        colour = QColor(self._theme.colours.accent if right else self._theme.colours.danger)
        colour.setAlphaF(0.12 + 0.55 * share)
        return colour

    def _recall(self, truth: int) -> str:
        total = sum(self.counts[truth])
        share = self.counts[truth][truth] / total if total else 0.0
        return tr("{share} of {count} photos found", share=percent(share), count=total)


def two_lines(name: str) -> str:
    """A name broken at the space nearest to its middle, so that a column needs half the width."""
    spaces = [at for at, letter in enumerate(name) if letter == " "]
    if not spaces or len(name) < SHORT:
        return name
    middle = min(spaces, key=lambda at: abs(at - len(name) / 2))
    return name[:middle] + "\n" + name[middle + 1 :]
