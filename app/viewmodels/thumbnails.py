"""Small pictures of photos, decoded by a few threads, newest request first, with an LRU cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from PySide6.QtCore import QObject, QThreadPool, Signal
from PySide6.QtGui import QImage, QPixmap

from core.errors import LeafClinicError
from core.ops.contract import Array

SIDE: Final = 144
"""Pixels of a cached thumbnail; it is drawn at 112, which stays sharp on denser displays."""
CACHED: Final = 1500
"""Cached thumbnails: 1500 x 144 x 144 x 4 bytes are 124 MB."""
MAX_REQUESTS: Final = 160
"""Pending requests; older ones have been scrolled out of view."""
THREADS: Final = 2


class Thumbnails(QObject):
    """`get` returns a picture, or None and requests it; `ready(path)` says that it is available.

    side: longest side of a picture in pixels; cached: cache size; whole: photos, not their central squares.
    """

    ready = Signal(object)
    _decoded = Signal(object, QImage)

    def __init__(self, parent: QObject | None, side: int = SIDE, cached: int = CACHED, whole: bool = False) -> None:
        super().__init__(parent)
        self._side, self._most, self._whole = side, cached, whole
        self._cache: OrderedDict[str, QPixmap | None] = OrderedDict()
        self._requests: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._busy = 0
        self._pool = QThreadPool(self, maxThreadCount=THREADS)
        self._decoded.connect(self._on_decoded)

    def get(self, path: str) -> QPixmap | None:
        """The thumbnail of a file; None while it is decoded, a null pixmap if there is none."""
        if path in self._cache:
            self._cache.move_to_end(path)
            return self._cache[path]
        with self._lock:
            self._requests[path] = path
            self._requests.move_to_end(path)
            while len(self._requests) > MAX_REQUESTS:
                self._requests.popitem(last=False)
            start = self._busy < THREADS
            self._busy += start
        if start:
            self._pool.start(self._decode)
        return None

    def forget(self) -> None:
        """Decode all files again, which may have changed."""
        self._cache.clear()

    def close(self) -> None:
        with self._lock:
            self._requests.clear()
        self._pool.waitForDone()

    def _decode(self) -> None:
        while True:
            with self._lock:
                if not self._requests:
                    self._busy -= 1
                    return
                path, _ = self._requests.popitem()
            self._decoded.emit(path, decode(path, self._side, self._whole))

    def _on_decoded(self, path: str, image: QImage) -> None:
        self._cache[path] = QPixmap.fromImage(image)
        while len(self._cache) > self._most:
            self._cache.popitem(last=False)
        self.ready.emit(path)


def decode(path: str, side: int, whole: bool) -> QImage:
    """A photo no larger than `side`, or its central square, which networks see; a null image for other files."""
    from core.data.photo import SQUARE, WHOLE, PhotoError
    from core.data.photo_reader import read_photo

    try:
        return to_image(read_photo(path, side, part=WHOLE if whole else SQUARE))
    except (PhotoError, LeafClinicError):  # the second: the process that decodes has no memory
        return QImage()


def to_image(pixels: Array) -> QImage:
    """RGB or RGBA uint8 ``(height, width, 3 or 4)`` as a QImage."""
    height, width, channels = pixels.shape
    form = QImage.Format.Format_RGB888 if channels == 3 else QImage.Format.Format_RGBA8888
    return QImage(pixels.tobytes(), width, height, channels * width, form).copy()
