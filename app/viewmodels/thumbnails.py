"""Small pictures of photos, decoded by a few threads, the newest wish first, the least used forgotten."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from PySide6.QtCore import QObject, QRunnable, QThreadPool, Signal
from PySide6.QtGui import QImage, QPixmap

SIDE: Final = 144
"""Pixels of a kept thumbnail; shown at 112, so that denser displays stay sharp."""
KEPT: Final = 1500
"""Thumbnails kept: 1500 x 144 x 144 x 4 bytes are 124 MB."""
WISHES: Final = 160
"""Waiting wishes; older ones have been scrolled past."""
THREADS: Final = 2


@final
class Thumbnails(QObject):
    """`get` gives a picture or None and wishes for it; `ready(path)` says that it is there.

    side: pixels of a picture; kept: how many are remembered.
    """

    ready = Signal(str)
    _decoded = Signal(str, QImage)

    def __init__(self, parent: QObject | None = None, side: int = SIDE, kept: int = KEPT) -> None:
        super().__init__(parent)
        self._side, self._most = side, kept
        self._kept: OrderedDict[str, QPixmap | None] = OrderedDict()
        self._wishes: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._busy = 0
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(THREADS)
        self._decoded.connect(self._on_decoded)

    def get(self, path: str) -> QPixmap | None:
        """The thumbnail of a file; None while it is on its way, a null pixmap where there is none."""
        if path in self._kept:
            self._kept.move_to_end(path)
            return self._kept[path]
        with self._lock:
            self._wishes[path] = path
            self._wishes.move_to_end(path)
            while len(self._wishes) > WISHES:
                self._wishes.popitem(last=False)
            start = self._busy < THREADS
            self._busy += start
        if start:
            self._pool.start(_Decoder(self._next, self._decoded.emit, self._side))
        return None

    def close(self) -> None:
        with self._lock:
            self._wishes.clear()
        self._pool.waitForDone()

    def _next(self) -> str | None:
        with self._lock:
            if self._wishes:
                return self._wishes.popitem()[0]
            self._busy -= 1
            return None

    def _on_decoded(self, path: str, image: QImage) -> None:
        self._kept[path] = QPixmap.fromImage(image)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        self.ready.emit(path)


@final
class _Decoder(QRunnable):
    """Takes wishes until there are none."""

    def __init__(self, take: Callable[[], str | None], give: Callable[[str, QImage], None], side: int) -> None:
        super().__init__()
        self._take, self._give, self._side = take, give, side

    def run(self) -> None:
        path = self._take()
        while path is not None:
            self._give(path, decode(path, self._side))
            path = self._take()


def decode(path: str, side: int) -> QImage:
    """The centred square of a photo as the network sees it; a null image where the file is no photo."""
    from core.data.photo import PhotoError
    from core.data.photo_reader import read_photo

    try:
        rgb = read_photo(path, side)
    except PhotoError:
        return QImage()
    return QImage(rgb.tobytes(), side, side, 3 * side, QImage.Format.Format_RGB888).copy()
