"""One window per user: a second start hands its paths to the first and ends."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Final, final

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app import paths

LONGEST: Final = 1_000_000
"""Bytes a second start may hand over; more is not ours."""
WAIT_MS: Final = 1000


def server_name() -> str:
    """One name per user and data folder."""
    return "leafclinic-" + hashlib.sha256(str(paths.home()).encode()).hexdigest()[:16]


def hand_over(given: Sequence[str], patience: float = 0.0) -> bool:
    """Give the paths to a window that is open already; False if there is none, nor one within `patience` seconds."""
    socket, begin = QLocalSocket(), time.monotonic()
    socket.connectToServer(server_name())
    while not socket.waitForConnected(WAIT_MS):
        if time.monotonic() - begin >= patience:
            return False
        time.sleep(0.05)
        socket.connectToServer(server_name())
    socket.write(json.dumps(list(given)).encode() + b"\n")
    socket.waitForBytesWritten(WAIT_MS)
    socket.disconnectFromServer()
    return True


@final
class FirstInstance(QObject):
    """Listens for later starts; `asked(list)` carries their paths and means: come to the front.

    alone: False where another began to listen first, in the same instant; this one then does not.
    """

    asked = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = QLockFile(str(paths.folder("settings") / "window.lock"))
        self.alone = self._lock.tryLock(0) or self._lock.error() is not QLockFile.LockError.LockFailedError
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        if self.alone and not self._server.listen(server_name()):
            QLocalServer.removeServer(server_name())  # left behind by a crash: nobody answered `hand_over`
            self._server.listen(server_name())

    def close(self) -> None:
        self._server.close()
        self._lock.unlock()

    def _on_connection(self) -> None:
        socket = self._server.nextPendingConnection()
        socket.readyRead.connect(self._on_data)
        socket.disconnected.connect(socket.deleteLater)
        if socket.bytesAvailable():
            self._read(socket)

    def _on_data(self) -> None:
        sender = self.sender()
        if isinstance(sender, QLocalSocket):
            self._read(sender)

    def _read(self, socket: QLocalSocket) -> None:
        if socket.bytesAvailable() > LONGEST:
            socket.abort()
        elif socket.canReadLine():
            self.asked.emit(_paths(bytes(socket.readLine().data())))


def _paths(line: bytes) -> list[str]:
    """What a start handed over; nothing of what is no list of texts."""
    try:
        given = json.loads(line)
    except ValueError:
        return []
    return [p for p in given if isinstance(p, str)] if isinstance(given, list) else []
