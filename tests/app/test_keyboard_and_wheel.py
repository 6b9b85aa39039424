"""What keys and the wheel do without being meant to: nothing."""

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QPushButton, QSlider

from app.main_window import PAGES
from app.viewmodels.training import State, TrainingModel

pytestmark = pytest.mark.gui


def test_no_field_of_any_place_follows_the_wheel(start):
    window = start().window
    for place in PAGES:
        panel = window.go(place)
        for widget in [w for kind in (QComboBox, QAbstractSpinBox, QSlider) for w in panel.findChildren(kind)]:
            turn = QWheelEvent(
                QPointF(1, 1), QPointF(1, 1), QPoint(), QPoint(0, -120), Qt.MouseButton.NoButton,
                Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
            )  # fmt: skip
            widget.wheelEvent(turn)
            assert not turn.isAccepted(), widget.accessibleName()


def focused_and_pressed(qtbot, button):
    """Space on a button that has the keyboard."""
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(button, Qt.Key.Key_Space)


def space(qtbot):
    where = QApplication.focusWidget()
    if where is not None:
        qtbot.keyClick(where, Qt.Key.Key_Space)


@pytest.fixture
def held(start, qtbot, monkeypatch):
    """The Train place while a pretended run goes on, and what was asked of the run."""
    asked = []
    for name, state in (("pause", State.PAUSED), ("resume", State.RUNNING), ("stop", State.STOPPING)):
        asks = lambda session, name=name, state=state: (asked.append(name), session._set(state))  # noqa: E731
        monkeypatch.setattr(TrainingModel, name, asks)
    program = start()
    session = program.training
    panel = program.window.go("train")
    qtbot.waitUntil(program.window.isActiveWindow)
    session._set(State.RUNNING)
    yield program, panel, asked
    session._set(State.IDLE)


def test_space_after_pause_resumes_and_after_stop_presses_no_other_button(held, qtbot):
    program, panel, asked = held
    focused_and_pressed(qtbot, panel.pause)
    assert (panel.pause.text(), panel.setup.starts.isEnabled()) == ("Resume", False)
    space(qtbot)
    assert (asked, panel.pause.text()) == (["pause", "resume"], "Pause")
    expert = program.settings.text("expert")
    focused_and_pressed(qtbot, panel.stop)
    for _ in range(3):
        space(qtbot)
    assert (asked[2:], program.settings.text("expert")) == (["stop"], expert)


def test_space_after_undo_presses_no_other_button(opened, qtbot):
    qtbot.waitUntil(opened.window.isActiveWindow)
    opened.document.exclude([0], True)
    undo = next(b for b in opened.window.page("dataset").head.findChildren(QPushButton) if b.text() == "Undo")
    focused_and_pressed(qtbot, undo)
    assert not opened.document.table.excluded.any()
    space(qtbot)
    assert not opened.document.table.excluded.any(), "Redo was pressed"


def test_places_and_switches_are_announced_as_one_of_several_and_a_click_leaves_the_place_marked(start, qtbot):
    window = start().window
    setup = window.go("train").setup
    button = window._buttons["train"]
    for width, text in ((980, ""), (1300, "Train")):  # icons only
        window.resize(width, 700)
        qtbot.waitUntil(lambda text=text: button.text().strip() == text)
    assert button.accessibleName() == "Train"
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert button.isChecked()
    assert [name for name, b in window._buttons.items() if b.isChecked()] == ["train"]
    for button in (*window._buttons.values(), *setup._switch.buttons(), *setup.start.buttons()):
        role = QAccessible.queryAccessibleInterface(button).role()
        assert role == QAccessible.Role.RadioButton, button.accessibleName()


@pytest.mark.parametrize("place", ["dataset", "diagnose"])
def test_shortcuts_of_the_window_work_in_a_search(opened, qtbot, place):
    window, search = opened.window, opened.window.go(place).search
    qtbot.waitUntil(window.isActiveWindow)
    if place == "diagnose":
        opened.window.page("diagnose").stack.setCurrentIndex(2)
    search.setFocus()
    done = []
    for action in (window.actions_.export_csv, window.actions_.camera, window.actions_.diagnose_photos):
        action.triggered.disconnect()
        action.setEnabled(True)
        action.triggered.connect(lambda _=False, action=action: done.append(action.objectName()))
    for key in (Qt.Key.Key_E, Qt.Key.Key_K, Qt.Key.Key_D):
        qtbot.keyClick(search, key, Qt.KeyboardModifier.ControlModifier)
    assert done == ["export_csv", "camera", "diagnose_photos"]
    qtbot.keyClicks(search, "rust")
    qtbot.keyClick(search, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert search.text() == "", "what edits text stays with the field"
    qtbot.keyClicks(search, "rust")
    qtbot.keyClick(search, Qt.Key.Key_Escape)
    assert search.text() == ""


def test_no_two_entries_of_a_menu_share_their_letter(start, qapp, language):
    bar = start().window.menuBar()
    menus = {"": bar.actions()} | {action.text(): action.menu().actions() for action in bar.actions()}
    for title, entries in menus.items():
        texts = [entry.text() for entry in entries if entry.text()]
        letters = [text[text.index("&") + 1].casefold() for text in texts if "&" in text]
        assert len(letters) == len(set(letters)), f"{title}: {texts}"
