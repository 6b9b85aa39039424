"""The user guide, shown offline, the storage of the program, and the camera."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QTextBrowser, QWidget

from app import resources, translation
from app.task import Task
from app.translation import tr
from app.viewmodels.thumbnails import to_image
from app.widgets.fields import SpinBox
from app.widgets.layouts import column, row
from app.widgets.notice import Notice
from app.widgets.parts import Dialog, button, label, named
from app.widgets.photo_view import PhotoView
from core.caches import clear_caches
from core.data.cache_limit import list_caches, read_limit, write_limit
from core.errors import LeafClinicError
from core.user_cache import kernel_bytes, user_cache_folder


class GuideDialog(Dialog):
    """Pages and pictures are files of the program; links to the internet are not followed."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, tr("User guide"), 820, 680)
        self.page = named(QTextBrowser(), tr("User guide"))
        self.page.document().setBaseUrl(QUrl.fromLocalFile(f"{resources.place('guide')}/"))
        self.page.setMarkdown(resources.text(f"guide/{translation.language()}.md"))
        self.page.setHtml(self.page.toHtml().replace("<img ", '<img style="max-width: 100%" '))
        self.setLayout(column((self.page, 1), row(None, button(tr("Close"), self.accept)), margins=None))


GIGABYTE: Final = 1_000_000_000
MOST_GIGABYTES: Final = 10_000


class StorageDialog(Dialog):
    """Decoded photos and compiled kernels of this user. Nothing is lost by clearing them."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, tr("Storage"), 520, 260)
        self._base = user_cache_folder()
        self.notice = Notice()
        self.used = label("", wrap=True)
        self.limit = named(SpinBox(), tr("Limit for decoded photos"))
        self.limit.setRange(0, MOST_GIGABYTES)
        self.limit.setSuffix(" GB")
        self.limit.setValue(round(read_limit(self._base) / GIGABYTE))
        self.limit.valueChanged.connect(self._on_limit)
        self.clear_button = button(tr("Clear"), self._on_clear, tip=tr("Photos are decoded again when they are needed"))
        about = tr("Decoded photos and compiled kernels are kept in {folder}. Your own photos are never touched.",
                   folder=str(self._base))  # fmt: skip
        order = tr("Above the limit, photos that were not used for the longest time are removed first.")
        self.setLayout(column(
            label(about, "muted", wrap=True), self.notice, self.used,
            row(label(tr("Limit for decoded photos")), self.limit, None), label(order, "caption", wrap=True), None,
            row(self.clear_button, None, button(tr("Close"), self.accept)), margins=None,
        ))  # fmt: skip
        self._show_use()

    def _show_use(self) -> None:
        photos = sum(use.size for use in list_caches(self._base))
        sizes = {"photos": f"{photos / GIGABYTE:.2f}", "kernels": f"{kernel_bytes() / GIGABYTE:.2f}"}
        self.used.setText(tr("Decoded photos: {photos} GB. Compiled kernels: {kernels} GB.", **sizes))

    def _on_limit(self, gigabytes: int) -> None:
        try:
            write_limit(self._base, gigabytes * GIGABYTE)
        except LeafClinicError as error:
            self.notice.alarm(str(error))

    def _on_clear(self) -> None:
        if clear_caches(self._base):
            self.notice.alarm(tr("Photos that a training is using were kept. Clear again when it has ended."))
        self._show_use()


FRAME_S = 1 / 25


class CameraDialog(Dialog):
    """`taken(picture)`: a photo was taken."""

    taken = Signal(QImage)
    _frame = Signal(QImage)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, tr("Camera"), 620, 680)
        self._last = QImage()
        self.view = PhotoView(tr("What the camera sees"))
        self.state = label(tr("Opening the camera…"), "muted", wrap=True)
        self.take = button(tr("Take the photo"), self._on_take, "primary")
        self.take.setShortcut("Space")
        self.take.setEnabled(False)
        buttons = row(None, button(tr("Close"), self.close), self.take)
        self.setLayout(column((self.view, 1), self.state, buttons, margins=None))
        self._frame.connect(self._on_frame)
        Task(lambda report, cancelled: read_frames(self._frame.emit, cancelled), self,
             done=self._on_missing, failed=self._on_missing)  # fmt: skip

    def _on_frame(self, picture: QImage) -> None:
        side = min(picture.width(), picture.height())
        self._last = picture.copy((picture.width() - side) // 2, (picture.height() - side) // 2, side, side)
        self.view.show_photo(self._last)
        self.state.setText(tr("Hold one leaf inside the square, in good light. Press the space bar to take the photo."))
        self.take.setEnabled(True)

    def _on_missing(self) -> None:
        self.state.setText(tr("No camera was found. Connect one, or allow this program to use it."))

    def _on_take(self) -> None:
        self.taken.emit(self._last)
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
