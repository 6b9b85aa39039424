"""The main window: side bar, pages, menus and status bar. `application.py` connects what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from PySide6.QtCore import QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QDropEvent, QIcon, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QMainWindow, QPushButton, QStackedWidget, QWidget

from app import resources
from app.actions import GROUPS, Actions, build_actions, build_menus
from app.theme import current_theme
from app.translation import tr
from app.widgets.layouts import PageArea, column, holding, row
from app.widgets.status_line import StatusLine

PAGES: Final = tuple(name.removeprefix("go_") for name in GROUPS[0])
SIDE_WIDTH: Final = 184
FOLDED_WIDTH: Final = 60
FOLDED_BELOW: Final = 1150
"""Width of the window below which the side bar shows only icons."""
FIRST_SIZE: Final = QSize(1280, 820)
LEAST_SIZE: Final = QSize(640, 400)
"""Fits a screen of 1920 x 1080 at 250 %; pages that need more room scroll."""
FRAME: Final = QSize(16, 48)
"""Size of the title bar and borders that a desktop adds to a window."""


class MainWindow(QMainWindow):
    """Pages are created on their first visit. Signals: `dropped(QMimeData)`, `closing()` when it may close."""

    dropped = Signal(QMimeData)
    closing = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setWindowTitle("LeafClinic")
        self.setWindowIcon(QIcon(resources.pixmap("leafclinic", "", 128)))
        self.setMinimumSize(LEAST_SIZE)
        self.resize(first_size(self.screen().availableSize()))
        self.setAcceptDrops(True)
        self.makers: Mapping[str, Callable[[], QWidget]] = {}
        """How each of `PAGES` is created on its first visit."""
        self.made: dict[str, Any] = {}
        self.may_close: Callable[[], bool] = lambda: True
        """Asked before the window closes; False keeps it open."""
        self.actions_ = build_actions(self)
        build_menus(self, self.actions_)
        self.stack = QStackedWidget()
        self.stack.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # initial focus, not a Tab stop
        self.status = StatusLine()
        self.setStatusBar(self.status)
        self._buttons: dict[str, QPushButton] = {}
        self._side = self._side_bar(self.actions_)
        self.setCentralWidget(holding(row(self._side, (PageArea(self.stack), 1), spacing=0)))
        current_theme().changed.connect(self._on_theme)
        self._on_theme()

    def page(self, name: str) -> Any:
        """A page, created if it was not visited yet; the caller knows the type of its panel."""
        if name not in self.made:
            self.made[name] = self.makers[name]()
            self.made[name].setObjectName(f"page_{name}")
            self.stack.addWidget(self.made[name])
        return self.made[name]

    @property
    def current(self) -> str:
        """The name of the page that is shown; the first one before any was visited."""
        return next((name for name, page in self.made.items() if page is self.stack.currentWidget()), PAGES[0])

    def go(self, name: str) -> Any:
        page = self.page(name)
        self.stack.setCurrentWidget(page)
        self.stack.setAccessibleName(self._buttons[name].accessibleName())
        getattr(self.actions_, f"go_{name}").setChecked(True)
        return page

    def _side_bar(self, actions: Actions) -> QWidget:
        side = QWidget()
        side.setObjectName("sidebar")
        side.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        sign = QLabel(pixmap=resources.pixmap("leafclinic", "", 56), scaledContents=True)
        sign.setFixedSize(28, 28)
        name = QLabel("LeafClinic")
        name.setObjectName("brand")
        self._head = row(sign, (name, 1), spacing=-1)
        promise = QLabel(tr("Nothing leaves\nthis computer."))
        promise.setObjectName("privacy")
        promise.setContentsMargins(10, 0, 0, 0)
        buttons = [self._page_button(page, actions) for page in PAGES]
        side.setLayout(column(self._head, *buttons, None, promise, spacing=4, margins=(8, 16, 8, 14)))
        self._folding = (name, promise, self.status.memory)
        return side

    def _fold(self, folded: bool) -> None:
        self._head.setContentsMargins(8, 0, 0 if not folded else 8, 10)
        for text in self._folding:
            text.setVisible(not folded)
        width = FOLDED_WIDTH if folded else max(SIDE_WIDTH, self._head.sizeHint().width() + 24)
        self._side.setFixedWidth(width)
        for button in self._buttons.values():
            button.setText("" if folded else "  " + button.accessibleName())
            button.setFixedSize(width - 16, 40)

    def _page_button(self, page: str, actions: Actions) -> QPushButton:
        action = getattr(actions, f"go_{page}")
        button = QPushButton()
        button.setObjectName(f"button_{page}")
        button.setCheckable(True)
        button.setAutoExclusive(True)  # a click on the current page keeps it checked; screen readers announce a group
        button.setAccessibleName(action.text().replace("&", ""))
        button.setToolTip(f"{action.toolTip()} ({action.shortcut().toString()})")
        button.setIconSize(QSize(20, 20))
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.clicked.connect(action.trigger)
        action.triggered.connect(lambda: self.go(page))
        action.toggled.connect(button.setChecked)
        self._buttons[page] = button
        return button

    def _on_theme(self) -> None:
        self._fold(self.width() < FOLDED_BELOW)  # the font may have another size
        for page, button in self._buttons.items():
            button.setIcon(resources.icon(page, current_theme().colours.muted, current_theme().colours.accent))

    def bring_to_front(self) -> None:
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def show_error(self, sentence: str, details: str) -> None:
        text = tr("Something went wrong: {error}. The program keeps running.", error=sentence.rstrip("."))
        self.page(self.current).notice.alarm(text, details)

    def showEvent(self, event: QShowEvent) -> None:  # noqa: N802 (Qt's names here and below)
        """Give the page the keyboard focus, not a button of the side bar."""
        super().showEvent(event)
        self.stack.setFocus()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        super().resizeEvent(event)
        self._fold(self.width() < FOLDED_BELOW)

    def dragEnterEvent(self, event: QDropEvent) -> None:  # noqa: N802
        if event.mimeData().hasUrls() or event.mimeData().hasImage():
            event.setDropAction(Qt.DropAction.CopyAction)  # files that count as moved may be deleted by their program
            event.accept()

    def dropEvent(self, event: QDropEvent) -> None:  # noqa: N802
        self.dragEnterEvent(event)
        self.dropped.emit(event.mimeData())

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802
        if self.may_close():
            self.closing.emit()
            event.accept()
        else:
            event.ignore()


def first_size(screen: QSize) -> QSize:
    """The window size of the first start on a screen of this size, without the desktop's bars."""
    return FIRST_SIZE.boundedTo(screen - FRAME).expandedTo(LEAST_SIZE)
