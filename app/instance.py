"""One window per user: a second start hands its paths to the first and ends.

They communicate through a Unix socket in a folder that no other user can write to, and each checks that the other
belongs to the same user. Without such a folder a second start opens its own window.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app import paths
from core.errors import InputError
from core.user_cache import make_private_folder

if sys.platform != "win32":
    import socket

WAIT_MS: Final = 1000
BUSY_MS: Final = 20_000
"""Longest time that the first window may be too busy to read on."""

MAX_PATH_BYTES: Final = 103
"""Bytes of a Unix socket's path: the limit of macOS; Linux allows 107."""


def server_name() -> str:
    """One name per user and data folder: a pipe on Windows, elsewhere a socket path; "" if no folder is safe."""
    name = "leafclinic-" + hashlib.sha256(str(paths.home()).encode()).hexdigest()[:16]
    if sys.platform == "win32":
        return name
    found = (_socket_path(folder, name) for folder in _folders())
    return next(filter(None, found), "")


def _folders() -> list[Path]:
    """Folders for the socket, best first: the session's, the program's, and one for temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    session = [Path(runtime)] if os.path.isabs(runtime) else []
    return [*session, paths.home() / "socket", Path(tempfile.gettempdir()) / f"leafclinic-{os.geteuid()}"]


def _socket_path(folder: Path, name: str) -> str:
    """The socket path; "" if it is too long or others can write to it."""
    path = folder / name
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return ""
    try:
        make_private_folder(folder)
    except (InputError, OSError):
        return ""
    return str(path)


def is_same_user(peer: QLocalSocket) -> bool:
    """Whether the process at the other end runs under this user. Windows allows no other user to connect."""
    if sys.platform == "win32":
        return True
    with socket.socket(fileno=os.dup(peer.socketDescriptor())) as end:
        if sys.platform == "darwin":  # struct xucred: version, uid ... (sys/ucred.h); SOL_LOCAL 0, LOCAL_PEERCRED 1
            _, user = struct.unpack("=II", end.getsockopt(0, 1, 76)[:8])
        else:  # struct ucred: pid, uid, gid
            _, user, _ = struct.unpack("=iII", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.geteuid())


def hand_over(given: Sequence[str], patience: float = 0.0) -> bool:
    """Send the paths to an open window; False if there is none, or none within `patience` seconds."""
    name, peer, begin = server_name(), QLocalSocket(), time.monotonic()
    if not name:
        return False
    peer.connectToServer(name)
    while not peer.waitForConnected(WAIT_MS):
        if time.monotonic() - begin >= patience:
            return False
        time.sleep(0.05)
        peer.connectToServer(name)
    if not is_same_user(peer):
        peer.abort()
        return False
    peer.write(json.dumps(list(given)).encode() + b"\n")
    while peer.bytesToWrite() and peer.waitForBytesWritten(BUSY_MS):
        pass
    peer.disconnectFromServer()
    return True


class FirstInstance(QObject):
    """Listens for later starts; `asked(list)` carries their paths and requests the window in front.

    alone: False if another process started to listen at the same moment; this one then does not.
    """

    asked = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = QLockFile(str(paths.folder("settings") / "window.lock"))
        self.alone = self._lock.tryLock(0) or self._lock.error() is not QLockFile.LockError.LockFailedError
        self._server = QLocalServer(self, socketOptions=QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        name = server_name() if self.alone else ""
        if name and not self._server.listen(name):
            QLocalServer.removeServer(name)  # left by a crash: no process answered `hand_over`
            self._server.listen(name)

    def close(self) -> None:
        self._server.close()
        self._lock.unlock()

    def _on_connection(self) -> None:
        peer = self._server.nextPendingConnection()
        peer.disconnected.connect(peer.deleteLater)
        if not is_same_user(peer):
            peer.abort()
            return
        peer.readyRead.connect(self._on_data)  # a lambda holding the peer would crash as Qt deletes it
        self._on_data(peer)

    def _on_data(self, new: QLocalSocket | None = None) -> None:
        peer = self.sender() if new is None else new
        if isinstance(peer, QLocalSocket) and peer.canReadLine():
            self.asked.emit(_paths(bytes(peer.readLine().data())))


def _paths(line: bytes) -> list[str]:
    """The paths that another start sent; nothing if the message is not a list of texts."""
    try:
        given = json.loads(line)
    except ValueError:
        return []
    return [p for p in given if isinstance(p, str)] if isinstance(given, list) else []
