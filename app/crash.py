"""Unexpected errors: one dialog with a sentence, details in the log; the program keeps running."""

from __future__ import annotations

import faulthandler
import logging
import platform
import sys
import threading
import traceback
from logging.handlers import RotatingFileHandler
from types import TracebackType
from typing import IO, Final

from PySide6 import __version__ as qt_version
from PySide6.QtCore import QObject, Signal

from app import paths
from core import __version__
from core.errors import LeafClinicError
from core.storage import saving

LOG_BYTES: Final = 1_000_000
log = logging.getLogger("app")


class CrashReporter(QObject):
    """Catches exceptions that no slot caught. `reported(sentence, details)` requests a dialog."""

    reported = Signal(str, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        place = paths.folder("logs")
        with saving(place, paths.OTHER):
            self._handler = RotatingFileHandler(place / "leafclinic.log", "a", LOG_BYTES, 2, "utf-8")
            self._fault: IO[str] = open(place / "crash.log", "a", encoding="utf-8")  # noqa: SIM115 (lives as we do)
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(self._handler)
        self._before = (sys.excepthook, threading.excepthook)
        sys.excepthook = self._on_error
        threading.excepthook = self._on_thread_error
        if not faulthandler.is_enabled():
            faulthandler.enable(self._fault)

    def remove(self) -> None:
        sys.excepthook, threading.excepthook = self._before
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()
        self._fault.close()

    def _on_error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            self._before[0](kind, error, trace)
            return
        program = f"LeafClinic {__version__}, Python {platform.python_version()}, Qt {qt_version}"
        lines = "".join(traceback.format_exception(kind, error, trace))
        details = f"{program}, {platform.platform()}\n\n{lines}"
        log.error("unexpected error\n%s", details)
        self.reported.emit(error_text(error), details)

    def _on_thread_error(self, given: threading.ExceptHookArgs) -> None:
        if given.exc_value is not None:
            self._on_error(given.exc_type, given.exc_value, given.exc_traceback)


def error_text(error: BaseException) -> str:
    """The sentence shown to the user: our own errors as they are, others by name."""
    if isinstance(error, LeafClinicError):
        return str(error)
    return f"{type(error).__name__}: {error}"
