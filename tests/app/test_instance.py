"""One window per user, and no other user between a second start and the first."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket

from app import instance, paths
from app.instance import FirstInstance, hand_over, server_name

pytestmark = [pytest.mark.gui, pytest.mark.skipif(os.name == "nt", reason="there are pipes instead of sockets")]

STRANGER = 65534


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def test_who_belongs_to_another_user_is_neither_told_nor_heard(qapp, qtbot, home, nothing_left, monkeypatch):
    first, name, told = FirstInstance(), server_name(), []
    first.asked.connect(told.append)
    monkeypatch.setattr(instance, "server_name", lambda: name)
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: STRANGER)
        assert not hand_over(["/photos/secret"])
    qtbot.wait(50)
    assert told == [], "nothing was sent: it would be heard now"
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    socket = QLocalSocket()
    socket.connectToServer(name)
    socket.write(b'["/photos/of/another"]\n')
    qtbot.waitUntil(lambda: socket.state() == QLocalSocket.LocalSocketState.UnconnectedState)
    assert told == []
    monkeypatch.undo()
    first.close()
    begin = time.monotonic()
    assert not hand_over(["/photos"], patience=0.2)
    assert time.monotonic() - begin >= 0.2, "a window that starts at the same moment listens later"


@pytest.fixture
def short(monkeypatch):
    """A folder of a short name that holds the program's data: paths of sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lc") as folder:
        monkeypatch.setenv("LEAFCLINIC_HOME", f"{folder}/home")
        yield Path(folder)


def test_the_socket_is_where_no_other_user_can_be(short, monkeypatch):
    home = short / "home"
    assert server_name() == str(home / "socket" / Path(server_name()).name)
    assert (home / "socket").stat().st_mode & 0o777 == 0o700
    runtime = short / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert Path(server_name()).parent == runtime
    runtime.chmod(0o777)
    assert Path(server_name()).parent == home / "socket"
    monkeypatch.setenv("LEAFCLINIC_HOME", str(short / ("long" * 20)))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    assert Path(server_name()).parent == short / f"leafclinic-{os.geteuid()}", "a name too long for a socket"


def test_without_a_private_folder_there_is_no_socket_but_a_window(qapp, home, monkeypatch, tmp_path):
    """Another user has made the folder among passing files first, and the data folder may be written by all."""
    common = tmp_path / "common"
    (common / f"leafclinic-{os.geteuid()}").mkdir(parents=True)
    (common / f"leafclinic-{os.geteuid()}").chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(common))
    paths.folder("settings")
    home.chmod(0o777)
    assert server_name() == ""
    assert not hand_over(["/photos"])
    first = FirstInstance()
    assert first.alone
    first.close()
