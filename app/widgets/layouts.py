"""Layouts: rows and columns, widgets that wrap like words, and pages that scroll."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from PySide6.QtCore import QEvent, QObject, QRect, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLayout,
    QLayoutItem,
    QScrollArea,
    QSplitter,
    QStackedWidget,
    QStyle,
    QVBoxLayout,
    QWidget,
)

Margins: TypeAlias = tuple[int, int, int, int]
Part: TypeAlias = QWidget | QLayout | None
Item: TypeAlias = Part | tuple[Part, int]
"""A part of a layout; None is a stretch, a pair has a stretch factor."""
B = TypeVar("B", bound=QBoxLayout)

GAP: Final = 12
PAGE: Final = (20, 16, 20, 14)
"""Margins of a page: left, top, right, bottom."""
TAB: Final = (0, 8, 0, 0)


def row(*items: Item, spacing: int = 8, margins: Margins = (0, 0, 0, 0)) -> QHBoxLayout:
    return _fill(QHBoxLayout(), items, spacing, margins)


def column(*items: Item, spacing: int = -1, margins: Margins | None = (0, 0, 0, 0)) -> QVBoxLayout:
    """Items below one another; spacing -1 and margins None are those of the style."""
    return _fill(QVBoxLayout(), items, spacing, margins)


def centred(*widgets: QWidget) -> QVBoxLayout:
    """Widgets below one another in the middle of their place."""
    made = column(*widgets, spacing=10, margins=None)
    made.setAlignment(Qt.AlignmentFlag.AlignCenter)
    for widget in widgets:
        made.setAlignment(widget, Qt.AlignmentFlag.AlignHCenter)
    return made


def _fill(layout: B, items: Iterable[Item], spacing: int, margins: Margins | None) -> B:
    layout.setSpacing(spacing)
    if margins is not None:
        layout.setContentsMargins(*margins)
    for item in items:
        part, stretch = item if isinstance(item, tuple) else (item, int(item is None))
        if part is None:
            layout.addStretch(stretch)
        elif isinstance(part, QLayout):
            layout.addLayout(part, stretch)
        else:
            layout.addWidget(part, stretch)
    return layout


def holding(layout: QLayout) -> QWidget:
    widget = QWidget()
    widget.setLayout(layout)
    return widget


def splitter(*parts: QWidget, sizes: Sequence[int] = (), upright: bool = False) -> QSplitter:
    """Widgets between which the user divides the room, side by side or `upright`; `sizes` in pixels at first."""
    made = QSplitter(Qt.Orientation.Vertical if upright else Qt.Orientation.Horizontal, handleWidth=GAP)
    for part in parts:
        made.addWidget(part)
    if sizes:
        made.setSizes(list(sizes))
    return made


def stack(*pages: QWidget) -> QStackedWidget:
    """Widgets of which one is shown, at first the first."""
    made = QStackedWidget()
    for page in pages:
        made.addWidget(page)
    return made


class Flow(QLayout):
    """No widget is narrower than its size hint; `fill`: which of a line share the width that is left."""

    def __init__(self, *widgets: QWidget, spacing: int = 8, fill: Sequence[QWidget] = ()) -> None:
        super().__init__()
        self._fill = fill
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
        """One line of all widgets."""
        shown = [item.sizeHint().width() for item in self._items if not item.isEmpty()]
        return QSize(sum(shown) + self.spacing() * max(len(shown) - 1, 0), self.minimumSize().height())

    def setGeometry(self, area: QRect) -> None:  # noqa: N802
        super().setGeometry(area)
        for item, place in self._place(area.width())[0]:
            item.setGeometry(place.translated(area.topLeft()))

    def _place(self, width: int) -> tuple[list[tuple[QLayoutItem, QRect]], int]:
        """The geometry of each shown item for a width, and the total height."""
        found, lines, top, room = list[tuple[QLayoutItem, QRect]](), list[list[QLayoutItem]](), 0, 0
        for item in (item for item in self._items if not item.isEmpty()):  # the others are hidden
            needed = item.sizeHint().width()
            if not lines or needed > room:
                lines.append([])
                room = width
            lines[-1].append(item)
            room -= needed + self.spacing()
        for line in lines:
            sizes, left = [item.sizeHint() for item in line], 0
            height, spare = max(size.height() for size in sizes), width + self.spacing()
            spare -= sum(size.width() + self.spacing() for size in sizes)
            growing = [item for item in line if item.widget() in self._fill]
            for item, size in zip(line, sizes, strict=True):
                share = max(spare, 0) // len(growing) if item in growing else 0
                growing = [other for other in growing if other is not item]
                found.append((item, QRect(left, top, size.width() + share, height)))
                left += size.width() + share + self.spacing()
                spare -= share
            top += height + self.spacing()
        return found, max(top - self.spacing(), 0)


class Wrapping(QWidget):
    """A widget at least as high as its wrapped texts: tabs and splitters do not ask for the height at a width."""

    def minimumSizeHint(self) -> QSize:  # noqa: N802 (Qt's names here and below)
        least, layout = super().minimumSizeHint(), self.layout()
        return least if layout is None else QSize(least.width(), layout.totalMinimumHeightForWidth(self.width()))

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        self.updateGeometry()


class PageArea(QScrollArea):
    """Gives the current page all the space, and never less than it needs, so that widgets do not overlap.

    Qt's own resizing of a scroll area uses the preferred height, and the largest of all pages.
    """

    def __init__(self, pages: QStackedWidget) -> None:
        super().__init__()
        self._pages = pages
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(pages)
        pages.currentChanged.connect(lambda _: self.fit())

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802 (Qt's names here and below)
        super().resizeEvent(event)
        self.fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if event.type() == QEvent.Type.LayoutRequest:  # such as a message that appeared
            self.fit()
        return super().eventFilter(watched, event)

    def fit(self) -> None:
        page, room = self._pages.currentWidget(), self.maximumViewportSize()
        if page is None:
            return
        needed = least_size(page, room.width())
        bar = self.style().pixelMetric(QStyle.PixelMetric.PM_ScrollBarExtent)
        if needed.height() > room.height():
            room -= QSize(bar, 0)
            needed = least_size(page, room.width())
        if needed.width() > room.width():
            room -= QSize(0, bar)
        self._pages.resize(room.expandedTo(needed))


def least_size(widget: QWidget, width: int) -> QSize:
    """The minimum size of a widget `width` pixels wide; wrapped texts need more height in less width."""
    least, layout = widget.minimumSizeHint(), widget.layout()
    if layout is not None and layout.hasHeightForWidth():
        least.setHeight(max(least.height(), layout.totalMinimumHeightForWidth(max(width, least.width()))))
    return least
