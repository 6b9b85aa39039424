"""Takes a photo with the camera: live view, shutter key, file in the program's data folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QDialog, QWidget

from app.task import Task
from app.translation import tr
from app.viewmodels.thumbnails import to_image
from app.widgets.layouts import column, row
from app.widgets.parts import button, fit, label
from app.widgets.photo_view import PhotoView
from core.storage import unused

FRAME_S = 1 / 25


@final
class CameraDialog(QDialog):
    """`taken(path)`: a photo was taken."""

    taken = Signal(str)
    _frame = Signal(QImage)

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
        self._frame.connect(self._on_frame)
        self._capture = Task(lambda report, cancelled: read_frames(self._frame.emit, cancelled), self,
                             done=self._on_missing)  # fmt: skip
        self.finished.connect(self._capture.dispose)

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


def read_frames(show: Callable[[QImage], None], cancelled: Callable[[], bool]) -> None:
    """Show the camera's frames until cancelled; returns if there is no camera, or no more frames.

    The camera is opened here, in a thread, because that takes seconds on some systems.
    """
    import cv2

    camera = cv2.VideoCapture(0)
    try:
        while camera.isOpened() and not cancelled():
            fine, picture = camera.read()
            if not fine:
                return
            show(to_image(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)))
            time.sleep(FRAME_S)
    finally:
        camera.release()
