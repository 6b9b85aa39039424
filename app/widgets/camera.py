"""Takes a photo with the camera: live view, shutter key, file in the program's data folder."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import final

from PySide6.QtCore import Qt, QThread, Signal
from PySide6.QtGui import QCloseEvent, QImage
from PySide6.QtWidgets import QDialog, QWidget

from app.translation import tr
from app.viewmodels.thumbnails import to_image
from app.widgets.layouts import column, row
from app.widgets.parts import button, fit, label
from app.widgets.photo_view import PhotoView
from core.storage import unused

FRAME_S = 1 / 25


@final
class _Capture(QThread):
    """Reads frames until stopped. The camera is opened here, because that takes seconds on some systems."""

    frame = Signal(QImage)
    missing = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        import cv2

        camera = cv2.VideoCapture(0)
        try:
            fine, picture = camera.read() if camera.isOpened() else (False, None)
            if not fine:
                self.missing.emit()
                return
            while fine and not self._stop.is_set():
                self.frame.emit(to_image(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)))
                time.sleep(FRAME_S)
                fine, picture = camera.read()
        finally:
            camera.release()


@final
class CameraDialog(QDialog):
    """`taken(path)`: a photo was taken."""

    taken = Signal(str)

    def __init__(self, parent: QWidget, place: Path) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Camera"))
        fit(self, 620, 680)
        self._place = place
        self._last = QImage()
        self.view = PhotoView(tr("What the camera sees"))
        self.state = label(tr("Opening the camera…"), "muted", wrap=True)
        self.take = button(tr("Take the photo"), self._on_take, "primary")
        self.take.setShortcut("Space")
        self.take.setEnabled(False)
        buttons = row(None, button(tr("Close"), self.close), self.take)
        self.setLayout(column((self.view, 1), self.state, buttons, margins=None))
        self._capture = _Capture(self)
        self._capture.frame.connect(self._on_frame)
        self._capture.missing.connect(self._on_missing)
        self._capture.start()

    def _on_frame(self, picture: QImage) -> None:
        side = min(picture.width(), picture.height())
        self._last = picture.copy((picture.width() - side) // 2, (picture.height() - side) // 2, side, side)
        self.view.show_photo(self._last)
        self.state.setText(tr("Hold one leaf inside the square, in good light. Press the space bar to take the photo."))
        self.take.setEnabled(True)

    def _on_missing(self) -> None:
        self.state.setText(tr("No camera was found. Connect one, or allow this program to use it."))

    def _on_take(self) -> None:
        path = unused(self._place / f"{time.strftime('%Y%m%d-%H%M%S')}-camera.png")
        if not self._last.save(str(path)):
            text = tr("The picture could not be saved in {folder}. Free disk space there.", folder=path.parent)
            self.state.setText(text)
            return
        self.taken.emit(str(path))
        self.close()

    def done(self, result: int) -> None:
        self._end()
        super().done(result)

    def closeEvent(self, event: QCloseEvent) -> None:  # noqa: N802 (Qt's name)
        self._end()
        super().closeEvent(event)

    def _end(self) -> None:
        self._capture.stop()
        self._capture.wait()
