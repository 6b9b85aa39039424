"""The pages of the window, one shown at a time; a page that needs more space scrolls."""

from __future__ import annotations

from typing import final

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QStackedWidget, QStyle, QWidget


@final
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
        """Update the size of the pages."""
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
