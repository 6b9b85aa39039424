"""The small widgets of every panel: labels, buttons, cards, headers, empty pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app import resources
from app.theme import Theme
from app.widgets.slot import Slot

GAP = 12
MARGIN = 20


@final
class Button(QPushButton):
    """A button that keeps the keyboard focus when it is disabled.

    Qt would move the focus to the next button, such as Stop, which the next press of Space would trigger.
    """

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: N802 (Qt's name)
        return self.isEnabled() and super().focusNextPrevChild(forward)


def label(text: str, role: str = "", wrap: bool = False) -> QLabel:
    """A text with a role of the style sheet ("title", "muted", "problem" ...)."""
    made = QLabel(text)
    if role:
        made.setProperty("role", role)
    made.setWordWrap(wrap)
    return made


def card(*, role: str = "card") -> tuple[QFrame, QVBoxLayout]:
    """A framed surface and its layout."""
    frame = QFrame()
    frame.setProperty("role", role)
    layout = QVBoxLayout(frame)
    layout.setContentsMargins(14, 12, 14, 12)
    layout.setSpacing(8)
    return frame, layout


def row(*widgets: QWidget | None, spacing: int = 8) -> QHBoxLayout:
    """Widgets side by side; None is a stretch."""
    layout = QHBoxLayout()
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(spacing)
    for widget in widgets:
        if widget is None:
            layout.addStretch(1)
        else:
            layout.addWidget(widget)
    return layout


def action_button(action: QAction, theme: Theme, icon: str = "", primary: bool = False) -> QPushButton:
    """A button for an action: same text, tooltip, state and effect, with its shortcut in the tooltip.

    An icon that changes is named by the action's data.
    """
    button = Button()
    button.setProperty("role", "primary" if primary else "")
    button.setIconSize(QSize(20, 16))

    def refresh() -> None:
        keys = action.shortcut().toString()
        button.setText(action.text().replace("&", "").rstrip("…"))
        button.setToolTip(f"{action.toolTip()} ({keys})" if keys else action.toolTip())
        button.setAccessibleName(button.text())
        button.setEnabled(action.isEnabled())
        if button.parent() is not None:  # without a parent it would flash as a window of its own
            button.setVisible(action.isVisible())
        if icon:
            colours = theme.colours
            shade = colours.on_accent if primary and action.isEnabled() else colours.text
            name = action.data() or icon
            button.setIcon(resources.icon(name, shade if action.isEnabled() else colours.muted, gap=0.25))

    action.changed.connect(refresh)
    theme.changed.connect(Slot(button, refresh).call)
    button.clicked.connect(action.trigger)
    refresh()
    return button


def button(text: str, clicked: Callable[[], object], role: str = "", tip: str = "") -> QPushButton:
    made = Button(text)
    made.setProperty("role", role)
    made.setToolTip(tip)
    made.setAccessibleName(text)
    made.clicked.connect(lambda: clicked())
    return made


def switch(*choices: tuple[str, str]) -> tuple[QButtonGroup, list[QWidget]]:
    """Exclusive buttons, the first one checked; each choice is a text and a tooltip. Also returns the buttons."""
    group, made = QButtonGroup(), list[QWidget]()
    for at, (text, tip) in enumerate(choices):
        one = QPushButton(text)
        one.setCheckable(True)
        one.setAutoExclusive(True)  # screen readers announce a group
        one.setProperty("role", "switch")
        one.setToolTip(tip)
        group.addButton(one, at)
        made.append(one)
    group.button(0).setChecked(True)
    return group, made


def side_width(place: QWidget) -> int:
    """Width of a page's left column: a third of the page, within the limits of its forms and tables."""
    return min(max(place.width() // 3, 312), 344)


def fit(dialog: QWidget, width: int, height: int) -> None:
    """The preferred size of a dialog, limited to the screen."""
    room = dialog.screen().availableSize()
    dialog.resize(min(width, room.width() - 40), min(height, room.height() - 60))


def header(title: str, subtitle: str, *widgets: QWidget) -> QWidget:
    """A page's header: its purpose on the left, its actions on the right."""
    head = QWidget()
    layout = QHBoxLayout(head)
    layout.setContentsMargins(0, 0, 0, 0)
    texts = QVBoxLayout()
    texts.setSpacing(2)
    texts.addWidget(label(title, "title"))
    under = label(subtitle, "subtitle")
    under.setObjectName("subtitle")
    under.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    texts.addWidget(under)
    layout.addLayout(texts, 1)
    for widget in widgets:
        layout.addWidget(widget, 0, Qt.AlignmentFlag.AlignBottom)
    return head


@final
class Figure(QFrame):
    """A number with its name below.

    The space of the number only grows: a label in a layout would lay out the whole window with every text.
    """

    def __init__(self, name: str, meaning: str = "") -> None:
        super().__init__()
        self.setProperty("role", "card")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(11, 9, 11, 9)
        layout.setSpacing(0)
        self._name = name
        self._place = QWidget()
        self.value = label("–", "figure")
        self.value.setParent(self._place)
        self._make_room()
        layout.addWidget(self._place)
        layout.addWidget(label(name, "caption"))
        self.setToolTip(meaning or name)
        self.setAccessibleDescription(meaning)

    def show_value(self, text: str) -> None:
        if text != self.value.text():
            self.value.setText(text)
            self._make_room()
            self.setAccessibleName(f"{self._name}: {text}")

    def _make_room(self) -> None:
        self.value.ensurePolished()
        wanted = self.value.sizeHint().expandedTo(self._place.minimumSize())
        if wanted != self._place.minimumSize():
            self._place.setMinimumSize(wanted)
            self._place.setMaximumHeight(wanted.height())
            self.value.setFixedSize(wanted)


@final
class EmptyPlace(QWidget):
    """The content of an empty page: a drawing, what the page is for, and what to do."""

    def __init__(self, theme: Theme, icon: str, title: str, text: str, *widgets: QWidget) -> None:
        super().__init__()
        self._theme, self._icon = theme, icon
        layout = QVBoxLayout(self)
        layout.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout.setSpacing(10)
        self._drawing = QLabel()
        layout.addWidget(self._drawing, 0, Qt.AlignmentFlag.AlignHCenter)
        self._title = label("", "heading")
        layout.addWidget(self._title, 0, Qt.AlignmentFlag.AlignHCenter)
        self.text = label("", "muted", wrap=True)
        self.text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.text.setFixedWidth(440)
        self.show_text(title, text)
        layout.addWidget(self.text, 0, Qt.AlignmentFlag.AlignHCenter)
        layout.addSpacing(4)
        holder = row(None, *widgets, None)
        layout.addLayout(holder)
        self.column = layout
        theme.changed.connect(self._draw)
        self._draw()

    def show_text(self, title: str, text: str) -> None:
        self._title.setText(title)
        self.text.setText(text)
        self.text.setMinimumHeight(max(self.text.heightForWidth(440), 0))  # -1 without a text

    def _draw(self) -> None:
        self._drawing.setPixmap(resources.pixmap(self._icon, self._theme.colours.accent, 56, self.devicePixelRatioF()))
