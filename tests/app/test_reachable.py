"""Every place by keyboard and by screen reader: names, the way of the Tab key, and where the keyboard is."""

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QAccessible, QImage
from PySide6.QtWidgets import QAbstractButton, QApplication, QLineEdit, QWidget

from app.main_window import PAGES
from app.panels.diagnose.brush import BrushDialog
from app.theme import current_theme
from app.viewmodels.result import PhotoResult, read_result
from tests.app.test_diagnose_place import CLASSES, THRESHOLDS, answer

pytestmark = [pytest.mark.gui, pytest.mark.styled]


@pytest.fixture
def full(opened, tmp_path):
    opened.diagnosis.ready, opened.diagnosis.verdicts.thresholds = {"classes": CLASSES}, THRESHOLDS
    photos = sorted((tmp_path / "photos").rglob("*.png"))
    opened.diagnosis.rows.append([read_result(PhotoResult(at, str(photo)), answer(0.9, str(at)))
                                   for at, photo in enumerate(photos)])  # fmt: skip
    for place in PAGES:
        opened.window.go(place)
    return opened


class Windows(QObject):
    """Notes what is shown as a window of its own."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def eventFilter(self, watched, event):  # noqa: N802 (Qt's name)
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self.shown.append(f"{type(watched).__name__} {watched.objectName()}")
        return False


def test_no_part_of_a_place_is_a_window_for_a_moment(start, qapp, qtbot):
    """Each would flash, and take the keyboard away."""
    watch = Windows()
    qapp.installEventFilter(watch)
    program = start()
    for place in PAGES:
        program.window.go(place)
    qapp.processEvents()
    qapp.removeEventFilter(watch)
    assert watch.shown == ["MainWindow "]


def name(widget):
    found = QAccessible.queryAccessibleInterface(widget)
    return found.text(QAccessible.Text.Name).strip() if found is not None else ""


def trail(widget):
    """A widget and what it lies in, for people who read a failure."""
    found = []
    while widget is not None:
        found.append(f"{type(widget).__name__} {widget.objectName()}".strip())
        widget = widget.parentWidget()
    return " < ".join(found[:5])


def stops(window):
    """What the Tab key can reach."""
    return [w for w in window.findChildren(QWidget) if w.focusPolicy() & Qt.FocusPolicy.TabFocus]


def test_whatever_the_keyboard_reaches_has_a_name(language, full):
    full.window.go("diagnose")._show_selected()  # it would be shown a moment later
    full.window.page("diagnose").detail.correct.click()
    nameless = [trail(w) for w in stops(full.window) if not name(w) and not w.isHidden()]
    assert not nameless, "\n".join(nameless)
    assert len(stops(full.window)) > 150
    full.window.findChild(BrushDialog).reject()


def test_the_tab_key_reaches_all_that_can_be_done_and_comes_round(full, qtbot):
    window = full.window
    qtbot.waitUntil(window.isActiveWindow)
    for place in PAGES:
        panel = window.go(place)
        qtbot.wait(50)
        wanted = {w for w in stops(panel) if w.isVisible() and w.isEnabled() and w.focusProxy() is None}
        window.stack.setFocus()
        reached = []
        for _ in range(120):
            qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
            if reached and QApplication.focusWidget() is reached[0]:
                break
            reached.append(QApplication.focusWidget())
        # of buttons that exclude each other the Tab key reaches one, the arrow keys the others
        missed = [trail(w) for w in wanted - set(reached) if not (isinstance(w, QAbstractButton) and w.group())]
        assert not missed, "\n".join(missed)
        assert len(reached) == len(set(reached)), [trail(w) for w in reached]
        assert window.stack not in reached, "nothing would show where the keyboard is"


def grab(widget):
    return widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_seen_where_the_keyboard_is(theme, full, qtbot):
    window = full.window
    qtbot.waitUntil(window.isActiveWindow)
    current_theme().set(theme)
    unseen = []
    for place in PAGES:
        panel = window.go(place)
        qtbot.wait(50)
        there = [w for w in stops(window) if panel.isAncestorOf(w) or w.objectName().startswith("button_")]
        for widget in there:
            if not widget.isVisible() or not widget.isEnabled() or widget.focusProxy() is not None:
                continue
            window.stack.setFocus()
            before = grab(widget)
            widget.setFocus(Qt.FocusReason.TabFocusReason)
            if isinstance(widget, QLineEdit):
                widget.deselect()
            if grab(widget) == before:
                unseen.append(trail(widget))
    assert not unseen, "\n".join(unseen)
    slider = window.go("diagnose").coverage.slider
    shown = [(slider.setEnabled(on), grab(slider))[1] for on in (True, False)]
    assert shown[0] != shown[1], "one that cannot be moved looks like one that can"


def test_ctrl_f_goes_to_the_search_of_the_place(full, qtbot):
    window = full.window
    qtbot.waitUntil(window.isActiveWindow)
    for place in ("dataset", "diagnose"):
        panel = window.go(place)
        qtbot.keyClick(window, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
        assert QApplication.focusWidget() is panel.search
    window.go("train")
    qtbot.keyClick(window, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
