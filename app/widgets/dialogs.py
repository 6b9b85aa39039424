"""The user guide, shown offline, and the storage of the program."""

from __future__ import annotations

from typing import Final, final

from PySide6.QtCore import QUrl
from PySide6.QtWidgets import QDialog, QTextBrowser, QWidget

from app import resources, translation
from app.theme import Theme
from app.translation import tr
from app.widgets.fields import SpinBox
from app.widgets.layouts import column, row
from app.widgets.notice import Notice
from app.widgets.parts import button, fit, label, named
from core.caches import clear_caches
from core.data.cache_limit import list_caches, read_limit, write_limit
from core.errors import LeafClinicError
from core.user_cache import kernel_bytes, user_cache_folder


@final
class GuideDialog(QDialog):
    """Pages and pictures are files of the program; links to the internet are not followed."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("User guide"))
        fit(self, 820, 680)
        self.page = named(QTextBrowser(), tr("User guide"))
        self.page.document().setBaseUrl(QUrl.fromLocalFile(f"{resources.place('guide')}/"))
        self.page.setMarkdown(resources.text(f"guide/{translation.language()}.md"))
        self.setLayout(column((self.page, 1), row(None, button(tr("Close"), self.accept)), margins=None))


GIGABYTE: Final = 1_000_000_000
MOST_GIGABYTES: Final = 10_000


@final
class StorageDialog(QDialog):
    """Decoded photos and compiled kernels of this user. Nothing is lost by clearing them."""

    def __init__(self, parent: QWidget, theme: Theme) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Storage"))
        fit(self, 520, 260)
        self._base = user_cache_folder()
        self.notice = Notice(theme)
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
        busy = clear_caches(self._base)
        if busy:
            self.notice.alarm(tr("Photos that a training is using were kept. Clear again when it has ended."))
        self._show_use()
