"""How the program starts: quickly, once, and without the engine."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtNetwork import QLocalSocket
from PySide6.QtWidgets import QApplication

from app import application, instance, paths
from app.__main__ import no_display
from app.instance import FirstInstance, hand_over
from app.main_window import PAGES
from app.paths import Settings
from app.processes import entry
from app.processes.entry import open_child
from app.viewmodels.diagnosis import DiagnosisModel
from core.errors import EXIT_FAILED, EXIT_WRONG_INPUT
from tests.helpers.commands import ROOT

pytestmark = pytest.mark.gui

OFFSCREEN = "This plugin does not support propagateSizeHints()\n"
"""What Qt's offscreen platform says."""


def python(code, **more):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, **more)


def test_the_window_starts_without_the_engine_and_its_heavy_libraries(tmp_path):
    code = (
        "import sys, os; from PySide6.QtWidgets import QApplication; from app.application import start; "
        "a = QApplication([]); p = start(a, []); a.processEvents(); assert p.window.isVisible(); "
        "print([m for m in ('numba', 'cv2', 'pyqtgraph', 'core.cpu', 'core.gpu', 'onnx') if m in sys.modules]); "
        "import core.training.run_folder; print('numba' in sys.modules); "  # by the first Resume
        "p.close()"
    )
    done = python(code, env={**os.environ, "LEAFCLINIC_HOME": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"})
    assert done.stdout.split() == ["[]", "False"], done.stdout + done.stderr


def test_ctrl_c_in_the_terminal_closes_the_window(tmp_path):
    done = python("import signal, sys; from PySide6.QtCore import QTimer; from PySide6.QtWidgets import QApplication; "
                  "from app.application import run; a = QApplication([]); QTimer.singleShot(9000, lambda: a.exit(7)); "
                  "QTimer.singleShot(0, lambda: signal.raise_signal(signal.SIGINT)); sys.exit(run([]))",
                  env={**os.environ, "LEAFCLINIC_HOME": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"})  # fmt: skip
    assert (done.returncode, done.stderr.replace(OFFSCREEN, "")) == (0, "")


def test_the_process_that_diagnoses_starts_before_qt_is_imported_but_not_for_another_page(tmp_path, monkeypatch):
    done = python("import sys; from app.processes import entry; start = entry.open_child; entry.open_child = "
                  "lambda command: print(*{'PySide6', 'numpy'} & set(sys.modules)) or start(command); "
                  "entry.start_ahead(); print(entry.started_ahead[0].process.poll()); entry.end_ahead()",
                  env={**os.environ, "LEAFCLINIC_HOME": str(tmp_path)})  # fmt: skip
    assert done.stdout == "\nNone\n", done.stdout + done.stderr
    monkeypatch.setenv("LEAFCLINIC_HOME", str(tmp_path))
    Settings(paths.settings_store()).set("page", "train")
    child = open_child([sys.executable, "-c", "input()"])
    monkeypatch.setattr(entry, "open_child", lambda command: child)
    entry.start_ahead()
    assert child.process.returncode is not None


def test_the_first_model_takes_the_process_that_runs_already(qtbot, monkeypatch):
    monkeypatch.setattr(entry, "NICE", 7)
    reply = "import sys; print('{\"known\": [', sys.stdin.readline().strip(), ']}', sep='', flush=True); input()"
    child = open_child([sys.executable, "-c", reply])
    assert os.getpriority(os.PRIO_PROCESS, child.process.pid) == 7
    assert os.getsid(child.process.pid) == child.process.pid, "a terminal that is closed would end it, too"
    entry.started_ahead.append(child)
    model = DiagnosisModel()
    model.load("leaves.safetensors")
    qtbot.waitUntil(lambda: bool(model.known))
    assert model.known == [{"model": "leaves.safetensors"}]
    model.close()
    unneeded = open_child([sys.executable, "-c", "input()"])
    entry.started_ahead.append(unneeded)
    entry.end_ahead()
    assert None not in (child.process.returncode, unneeded.process.returncode)
    assert unneeded.errors.closed


def test_twenty_thousand_signals_do_not_end_the_interpreter():
    done = python("from PySide6.QtCore import QObject, Signal\nclass A(QObject):\n    s = Signal(object)\n"
                  "a = A(); n = []\na.s.connect(n.append)\n"
                  "for i in range(20000): a.s.emit(True)\nprint(len(n))")  # fmt: skip
    assert done.stdout.strip() == "20000", done.stderr


def test_without_a_display_or_a_library_a_sentence_says_so(tmp_path, monkeypatch):
    hidden = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "LEAFCLINIC_HOME": str(tmp_path)}
    for first, platform, words in (("", "", "There is no display"),
                                   ("sys.modules['PySide6'] = 0", "offscreen", "The window cannot start")):  # fmt: skip
        done = python(f"import sys; {first}\nfrom app.__main__ import main; sys.exit(main([]))",
                      env=os.environ | hidden | {"QT_QPA_PLATFORM": platform})  # fmt: skip
        assert (done.returncode, done.stderr.count("\n"), done.stderr[:len(words)]) == (EXIT_WRONG_INPUT, 1, words)
    monkeypatch.setattr("app.__main__.CURSOR", "libnowhere.so.0")
    assert "libnowhere.so.0 is missing. As root" in no_display({"DISPLAY": ":0"})
    assert no_display({"WAYLAND_DISPLAY": "wayland-0"}) == no_display({"QT_QPA_PLATFORM": "offscreen"}) == ""


@pytest.mark.parametrize(("file", "words"), [("home", "home is a file"), ("home/logs", "logs is a file"),
                                             ("home/logs/leafclinic.log/x", "logs could not be saved: Is a dir")])
def test_a_folder_of_the_program_that_cannot_be_made_is_told(qapp, tmp_path, monkeypatch, answers, capsys, file, words):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    monkeypatch.setenv("LEAFCLINIC_HOME", str(tmp_path / "home"))
    assert application.run([]) == EXIT_FAILED
    assert all(part in answers[0] for part in (words, "LEAFCLINIC_HOME"))
    assert answers[0].strip() == capsys.readouterr().err.strip()


def test_a_second_start_hands_its_paths_to_the_first(qapp, qtbot, home, nothing_left):
    assert not hand_over(["/nobody/listens"])
    first, given = FirstInstance(), "['/a folder/with ümlaut', *map(str, range(200_000))]"  # more than a socket holds
    code = f"from app.instance import hand_over; assert hand_over({given})"
    second, asked = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT), qtbot.waitSignal(first.asked)
    asked.wait()
    assert (asked.args, second.wait()) == ([eval(given)], 0)
    for nonsense in (b"no json", b"5", b"[1, null]"):
        socket = QLocalSocket()
        socket.connectToServer(instance.server_name())
        with qtbot.waitSignal(first.asked) as asked:
            socket.write(nonsense + b"\n")
        assert asked.args == [[]]
    first.close()
    assert not hand_over([])


def test_of_two_starts_in_the_same_instant_one_gives_way(qapp, qtbot, home, nothing_left, monkeypatch):
    """Both found nobody that listens; then the first was a moment quicker."""
    first, calls = FirstInstance(), []
    monkeypatch.setattr(application, "hand_over", lambda *of: calls.append(of) or (len(calls) > 1 and hand_over(*of)))
    with qtbot.waitSignal(first.asked) as asked:
        program = application.start(qapp, ["/leaves"])
    assert (program, asked.args) == (None, [["/leaves"]])
    first.close()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def test_a_socket_left_by_a_crash_is_taken_over(qapp, qtbot, home, monkeypatch):
    first = FirstInstance()
    first._lock.unlock()  # as the system does for a program that crashed
    second = FirstInstance()
    with qtbot.waitSignal(second.asked):
        assert hand_over(["x"])
    first.close()
    second.close()
    assert Path(instance.server_name()).name.startswith("leafclinic-")


def test_an_error_in_a_slot_or_a_thread_is_told_written_down_and_survived(start, home, qtbot):
    program, told = start(), []
    program.crash.reported.disconnect()
    program.crash.reported.connect(lambda *report: told.append(report))
    program.crash.reported.connect(program.window.show_error)
    for place in PAGES:
        notice = program.window.go(place).notice
        try:
            raise ZeroDivisionError(place)
        except ZeroDivisionError as error:
            sys.excepthook(type(error), error, error.__traceback__)
        assert (told[-1][0], "test_start.py" in told[-1][1]) == (f"ZeroDivisionError: {place}", True)
        assert (notice.isVisible(), notice.copy.isVisible(), place in notice.text.text()) == (True, True, True)
    assert f"ZeroDivisionError: {place}" in (home / "logs" / "leafclinic.log").read_text("utf-8")
    assert program.window.isVisible()
    program.crash.reported.disconnect(program.window.show_error)
    thread = threading.Thread(target=lambda: [][1])
    thread.start()
    thread.join()
    qtbot.waitUntil(lambda: [said for said, _ in told[len(PAGES) :]] == ["IndexError: list index out of range"])


def test_a_second_start_opens_its_folder_in_the_first_window(start, qtbot, tmp_path):
    program = start()
    program.window.go("diagnose")
    program.window.bring_to_front = Mock()  # offscreen it warns
    with qtbot.waitSignal(program.first.asked):
        assert start(str(tmp_path)) is None
    assert (program.document.asked, program.diagnosis.rows.rows) == (str(tmp_path), [])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(("command", "key", "variable"), [
    ("app", "", ""), ("core.train --json", "message", ""), ("app diagnose --json", "error", ""),
    ("core.lab sweep --json x", "", "NUMBA_DISABLE_JIT=1"), ("app doctor --json", "error", "NUMBA_NUM_THREADS=0"),
])  # fmt: skip
def test_too_little_address_space_and_broken_variables_are_reported_in_a_sentence(command, key, variable):
    import resource

    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, **dict([variable.split("=")] if variable else [])},
        preexec_fn=lambda: variable or resource.setrlimit(resource.RLIMIT_AS, (600 << 20,) * 2),
    )  # fmt: skip
    assert done.returncode == EXIT_WRONG_INPUT
    reason = f"{variable} keeps Numba" if variable else "Address space is limited to 629 MB here;"
    assert done.stderr.startswith(reason), done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout if not key else json.loads(done.stdout)[key] == done.stderr.strip()
