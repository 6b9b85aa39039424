"""The small widgets of every panel: labels, buttons, cards, headers, empty pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, QSize, Qt, QUrl
from PySide6.QtGui import QAction, QDesktopServices
from PySide6.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QMessageBox,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSpinBox,
    QTabWidget,
    QWidget,
)

from app import resources
from app.paths import PHOTO_FOLDERS, Settings, settings_store
from app.theme import current_theme
from app.translation import sentence
from app.widgets.layouts import Flow, Item, Margins, centred, column, holding, row
from core.storage import inside_photos, unused

W = TypeVar("W", bound=QWidget)


def named(widget: W, name: str) -> W:
    """The widget with its accessible name, also on its list, line edit and tab bar."""
    widget.setAccessibleName(name)
    if isinstance(widget, QComboBox):
        widget.view().setAccessibleName(name)
    elif isinstance(widget, QSpinBox):
        widget.lineEdit().setAccessibleName(name)
    elif isinstance(widget, QTabWidget):
        widget.tabBar().setAccessibleName(name)
    return widget


class Slot(QObject):
    """Connect `call` if the sender lives longer than `owner`: Qt disconnects it when the owner is deleted.

    A plain function has no owner and would still be called.
    """

    def __init__(self, owner: QObject, function: Callable[..., object]) -> None:
        super().__init__(owner)
        self._function = function

    def call(self, *values: object) -> None:
        self._function(*values)


class Button(QPushButton):
    """A button that keeps the keyboard focus when it is disabled, and passes it backwards when it is hidden.

    Qt would move the focus to the next button, such as Stop, which the next press of Space would trigger.
    """

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: N802 (Qt's name)
        return self.isEnabled() and super().focusNextPrevChild(forward and self.isVisible())


def label(text: str, role: str = "", wrap: bool = False) -> QLabel:
    """A text with a role of the style sheet ("title", "muted", "problem" ...)."""
    # plain: names of files and classes may look like HTML
    made = QLabel(text, textFormat=Qt.TextFormat.PlainText, wordWrap=wrap)
    if role:
        made.setProperty("role", role)
    return made


def card(*items: Item, role: str = "card", spacing: int = 8, margins: Margins = (14, 12, 14, 12)) -> QFrame:
    frame = QFrame()
    frame.setProperty("role", role)
    frame.setLayout(column(*items, spacing=spacing, margins=margins))
    return frame


def action_button(action: QAction, icon: str = "", primary: bool = False) -> QPushButton:
    """A button for an action: text, tooltip with shortcut, state, effect. The action's data name a changing icon."""
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
            colours = current_theme().colours
            shade = colours.on_accent if primary and action.isEnabled() else colours.text
            name = action.data() or icon
            button.setIcon(resources.icon(name, shade if action.isEnabled() else colours.muted, gap=0.25))

    action.changed.connect(refresh)
    current_theme().changed.connect(Slot(button, refresh).call)
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


def captioned(name: str, field: QWidget) -> QHBoxLayout:
    """A field with its name on its left."""
    return row(label(name, "muted"), named(field, name))


def tabs(name: str, *pages: tuple[QWidget, str]) -> QTabWidget:
    """Pages with their titles; `name` is that of all of them."""
    made = named(QTabWidget(documentMode=True), name)
    for page, title in pages:
        made.addTab(page, title)
    return made


def open_file(path: str | Path) -> None:
    """Open a file or folder in the desktop's program for it."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))


def progress_bar(name: str, width: int = 0) -> QProgressBar:
    """A progress bar without text, as wide as its layout allows or `width` pixels."""
    bar = named(QProgressBar(textVisible=False), name)
    if width:
        bar.setFixedWidth(width)
    return bar


def scrolling(widget: QWidget, name: str = "") -> QScrollArea:
    """A widget that scrolls up and down; by keys, too, if it has a name."""
    area = named(QScrollArea(widgetResizable=True), name)
    area.setWidget(widget)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    if not name:
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return area


def side_width(place: QWidget) -> int:
    """Width of a page's left column: a third of the page, within the limits of its forms and tables."""
    return min(max(place.width() // 3, 312), 25 * place.fontMetrics().height())


class Dialog(QDialog):
    """A dialog of a preferred size, in pixels at a font 14 pixels high, limited to the screen; closing deletes it."""

    def __init__(self, parent: QWidget, title: str, width: int, height: int) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        wanted = QSize(width, height) * (self.fontMetrics().height() / 14)
        self.resize(wanted.boundedTo(self.screen().availableSize() - QSize(40, 60)))


def confirm(parent: QWidget, question: str, more: str, verb: str, instead: QAction | None = None) -> bool:
    """Ask a question in a dialog; `verb` is the button that answers yes, a third one answers no and does `instead`."""
    buttons = QMessageBox.StandardButton.Yes | QMessageBox.StandardButton.Cancel
    box = QMessageBox(QMessageBox.Icon.Question, "LeafClinic", question, buttons, parent, informativeText=more)
    box.button(QMessageBox.StandardButton.Yes).setText(verb)
    if instead is not None:
        made = box.addButton(instead.text().replace("&", ""), QMessageBox.ButtonRole.RejectRole)
        made.clicked.connect(instead.trigger, Qt.ConnectionType.QueuedConnection)  # when this dialog is closed
    box.setDefaultButton(QMessageBox.StandardButton.Cancel)  # a second press of Enter must not delete
    return box.exec() == QMessageBox.StandardButton.Yes


def ask_target(parent: QWidget, title: str, start: str, kinds: str) -> str:
    """Ask where to save a file: its path with an ending of `kinds`, "" if cancelled. Photo folders are refused."""
    settings = Settings(settings_store())
    proposed = str(Path(settings.text("last_saved", str(Path.home()))) / start)
    chosen, kind = QFileDialog.getSaveFileName(parent, title, proposed, kinds)
    endings = re.findall(r"\*(\.\w+)", kind + kinds)
    if chosen and Path(chosen).suffix.lower() not in endings:  # the dialog did not ask whether to replace that file
        chosen = str(unused(Path(chosen + endings[0])))
    if refusal := inside_photos(chosen, PHOTO_FOLDERS):
        QMessageBox(QMessageBox.Icon.Warning, title, sentence(refusal), parent=parent).open()
        return ""
    if chosen:
        settings.set("last_saved", str(Path(chosen).parent))
    return chosen


def header(title: str, subtitle: str, *widgets: QWidget) -> QWidget:
    """A page's header: its purpose on the left, its actions on the right."""
    under = label(subtitle, "subtitle")
    under.setObjectName("subtitle")
    under.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # the width that the actions leave
    under.setWordWrap(True)  # after the policy, which it makes depend on the width
    tools = holding(Flow(*widgets, fill=widgets))
    layout = row((column(label(title, "title"), under, spacing=2), 1), tools, spacing=-1)
    layout.setAlignment(tools, Qt.AlignmentFlag.AlignBottom)
    return holding(layout)


class Figure(QFrame):
    """A number with its name below.

    The space of the number only grows: a label in a layout would lay out the whole window with every text.
    """

    def __init__(self, name: str, meaning: str = "") -> None:
        super().__init__()
        self.setProperty("role", "card")
        self._name = name
        self._place = QWidget()
        self.value = label("–", "figure")
        self.value.setParent(self._place)
        self._make_room()
        self.setLayout(column(self._place, label(name, "caption"), spacing=0, margins=(7, 9, 7, 9)))
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


class EmptyPlace(QWidget):
    """The content of an empty page: a drawing, what the page is for, and what to do."""

    def __init__(self, icon: str, title: str, text: str, *widgets: QWidget) -> None:
        super().__init__()
        self._icon = icon
        self._drawing, self._texts = QLabel(), (label(title, "heading", wrap=True), label(text, "muted", wrap=True))
        for one in self._texts:
            one.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            one.setFixedWidth(336)
        self.column = centred(self._drawing, *self._texts, holding(row(*widgets, margins=(0, 4, 0, 0))))
        self.setLayout(self.column)
        current_theme().changed.connect(self._draw)
        self._draw()

    def _draw(self) -> None:
        for one in self._texts:
            one.setMinimumHeight(one.heightForWidth(one.width()))
        colour, ratio = current_theme().colours.accent, self.devicePixelRatioF()
        self._drawing.setPixmap(resources.pixmap(self._icon, colour, 56, ratio))
