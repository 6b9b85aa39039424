"""Fixtures for tests of the window: the real program in a home of its own, and guards that nothing is left behind."""

import gc
import os
import threading
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import shiboken6
from PySide6.QtCore import QEvent, QMimeData, QPointF, QSettings, Qt, QThread, QTimer, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from app import translation
from app.paths import Settings
from app.processes import entry
from core.data.photo_reader import READERS
from tests.helpers.commands import children_of

for wait in (QtBot.waitUntil, QtBot.waitSignal, QtBot.waitSignals):
    wait.__kwdefaults__["timeout"] = 120_000  # ms; beside other programs a process starts late
entry.NICE = os.nice(0)  # beside the tests of other files a process of lower priority would take ten times as long

PATIENCE = 250_000
"""Milliseconds: the kernels may have to be compiled first, on a machine with other things to do."""
FAKE_WORKER = Path(__file__).with_name("fake_worker.py")


@pytest.fixture(scope="session", autouse=True)
def offscreen():
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAFCLINIC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def settings(tmp_path, qapp, home):
    return Settings(QSettings(str(tmp_path / "s.ini"), QSettings.Format.IniFormat))


def children() -> set[int]:
    """Process numbers of this process's living children (Linux), but Python's tracker, which Numba's lock starts."""
    return {pid for pid in children_of("self") if "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
            and b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()}  # fmt: skip


def own_threads() -> set[threading.Thread]:
    """Python's threads; what it keeps of Qt's threads that have ended does not count."""
    return {t for t in threading.enumerate() if not isinstance(t, threading._DummyThread)}


@pytest.fixture(params=["en", "vi"])
def language(request, qapp):
    translation.install(qapp, request.param)
    yield request.param
    translation.remove(qapp)


@pytest.fixture
def nothing_left(qapp, monkeypatch):
    """No thread, timer or process of the test may outlive it."""
    gc.collect()
    gc.disable()  # as the program does: Qt objects must not die in another thread (`app.collector`)
    gc.freeze()  # all modules and tests: the collections below then traverse only what this test makes
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)
    threads, processes = own_threads(), children()
    yield
    READERS.release()  # parts of the program that were tested alone have nobody who does
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        qapp.processEvents()
        if not (own_threads() - threads or children() - processes):
            break
        time.sleep(0.02)
    gc.collect()
    gc.enable()
    left = gc.get_objects()  # by type: isinstance would ask what a weak reference refers to, which may have gone
    running = [o for o in left if issubclass(type(o), QThread) and shiboken6.isValid(o) and o.isRunning()]
    ticking = [o for o in left if issubclass(type(o), QTimer) and shiboken6.isValid(o)
               and o.isActive() and not o.isSingleShot()]  # fmt: skip
    assert not running, f"threads still run: {running}"
    assert not ticking, f"timers still tick: {[(t.parent(), t.interval()) for t in ticking]}"
    assert not own_threads() - threads, own_threads() - threads
    assert not children() - processes, "processes are left"


@pytest.fixture
def start(qapp, qtbot, home, nothing_left, monkeypatch, request):
    """`start(*paths)`: the program as `main` starts it, closed after the test. Errors in slots fail the test.

    It opens on Dataset, where no model is loaded; with `first` as the very first start does. Without the mark `styled`
    it has no style sheet, which takes half of the time that its pages take.
    """
    from app import application, paths, theme
    from app.main_window import FIRST_SIZE

    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    if request.node.get_closest_marker("styled") is None:
        monkeypatch.setattr(theme, "stylesheet", lambda colours: "")
    programs, errors = [], []

    def make(*given, first=False):
        settings = Settings(paths.settings_store())
        if not first and not settings.text("page"):
            settings.set("page", "dataset")
            settings.sync()
        program = application.start(qapp, list(given))
        if program is not None:
            program.window.resize(FIRST_SIZE)  # the screen of an offscreen run has 800 x 800 pixels
            program.crash.reported.connect(lambda sentence, details: errors.append(details))
            programs.append(program)
        return program

    yield make
    monkeypatch.setattr("app.commands.confirm", lambda *_: True)  # after a failure a training may still run
    for program in programs:
        program.window.hide()
        program.close()
        program.window.close()
        program.window.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    qapp.processEvents()
    assert not errors, errors[0]


@pytest.fixture
def program(start):
    return start()


@pytest.fixture
def opened(start, qtbot, tmp_path):
    """The program with a folder of three healthy and three rusty photos open."""
    made = start(write_folder(tmp_path / "photos", {"healthy": 3, "rust": 3}))
    qtbot.waitUntil(lambda: made.document.table is not None)
    return made


@pytest.fixture
def answers(monkeypatch):
    """Message boxes do not wait: they are noted here and answered with `answers.reply`."""

    class Answers(list):
        reply = QMessageBox.StandardButton.Yes

    found = Answers()

    def execute(box):
        assert box.button(QMessageBox.StandardButton.Cancel) in (None, box.defaultButton()), "Enter says yes"
        found.append(box.text() + " " + box.informativeText())
        return found.reply

    monkeypatch.setattr(QMessageBox, "exec", execute)
    return found


def drop(window, paths) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromUserInput(str(path)) for path in paths])
    copy, move, where = Qt.DropAction.CopyAction, Qt.DropAction.MoveAction, QPointF(window.rect().center())
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ShiftModifier
    for step in (QEvent.Type.DragEnter, QEvent.Type.Drop):  # Qt 6.8 and 6.12 share no other constructor for the former
        event = QDropEvent(where, copy | move, data, buttons, keys, step)
        QApplication.sendEvent(window, event)
        assert (event.isAccepted(), event.dropAction()) == (True, copy), "a source may delete what was moved"


def write_folder(folder: Path, classes: dict[str, int]) -> Path:
    """Tiny photos, so many for each class; every one differs."""
    for name, many in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(many):
            pixels = np.random.default_rng([len(name), number]).integers(0, 255, (16, 16, 3), np.uint8)
            (folder / name / f"{number}.png").write_bytes(cv2.imencode(".png", pixels)[1].tobytes())
    return folder
