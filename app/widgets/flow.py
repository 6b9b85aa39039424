"""A layout that places widgets side by side and wraps them like words."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QWidget


@final
class Flow(QLayout):
    """No widget is narrower than its size hint; `insertWidget` and `count` are those of Qt's box layouts."""

    def __init__(self, *widgets: QWidget, spacing: int = 8) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        self._heights: dict[int, int] = {}
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(spacing)
        for widget in widgets:
            self.addWidget(widget)

    def addItem(self, item: QLayoutItem) -> None:  # noqa: N802 (Qt's names here and below)
        self._items.append(item)
        self.invalidate()

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, at: int) -> QLayoutItem | None:  # noqa: N802
        return self._items[at] if 0 <= at < len(self._items) else None

    def takeAt(self, at: int) -> QLayoutItem | None:  # noqa: N802
        self.invalidate()
        return self._items.pop(at) if 0 <= at < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:  # noqa: N802
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:  # noqa: N802
        return True

    def heightForWidth(self, width: int) -> int:  # noqa: N802
        """Cached: Qt asks hundreds of times while it computes the surrounding layouts."""
        if width not in self._heights:
            self._heights[width] = self._place(width)[1]
        return self._heights[width]

    def invalidate(self) -> None:
        self._heights.clear()
        super().invalidate()

    def minimumSize(self) -> QSize:  # noqa: N802
        """As wide as the widest widget, as high as one line: the height follows from the width."""
        sizes = [item.sizeHint() for item in self._items]
        return QSize(max((s.width() for s in sizes), default=0), max((s.height() for s in sizes), default=0))

    def sizeHint(self) -> QSize:  # noqa: N802
        return self.minimumSize()

    def setGeometry(self, area: QRect) -> None:  # noqa: N802
        super().setGeometry(area)
        for item, place in self._place(area.width())[0]:
            item.setGeometry(place.translated(area.topLeft()))

    def _place(self, width: int) -> tuple[list[tuple[QLayoutItem, QRect]], int]:
        """The geometry of each shown item for a width, and the total height."""
        found, corner, line = list[tuple[QLayoutItem, QRect]](), QPoint(0, 0), 0
        for item in self._items:
            if item.isEmpty():  # hidden
                continue
            size = item.sizeHint()
            if corner.x() and corner.x() + size.width() > width:
                corner, line = QPoint(0, corner.y() + line + self.spacing()), 0
            found.append((item, QRect(corner, size)))
            corner += QPoint(size.width() + self.spacing(), 0)
            line = max(line, size.height())
        return found, corner.y() + line
