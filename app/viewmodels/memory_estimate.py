"""The memory a run will need, computed by a process after the settings stopped changing."""

from __future__ import annotations

import json
from typing import Any, Final, final

from PySide6.QtCore import QObject, QTimer, Signal

from app.process_thread import ProcessThread
from app.processes.entry import command
from app.translation import sentence, tr

REST_MS: Final = 1200
"""Laying out the plans takes a second of a core: not at every key."""


@final
class MemoryEstimate(QObject):
    """`told(text)`: a line for the form, "" while unknown; `device_known(name)`: the device of a run."""

    told = Signal(str)
    device_known = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread: ProcessThread | None = None
        self._request = ""
        self._rest = QTimer(self, singleShot=True, interval=REST_MS)
        self._rest.timeout.connect(self._start)

    def ask(self, config: dict[str, Any], classes: int, photos: int) -> None:
        """Request an estimate for these settings; an earlier request is cancelled."""
        self.forget()
        self._request = json.dumps({"config": config, "classes": classes, "photos": photos})
        self._rest.start()

    def forget(self) -> None:
        self._rest.stop()
        self.told.emit("")
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.dispose()

    close = forget

    def _start(self) -> None:
        thread = ProcessThread(command("memory"), json.loads, self)
        thread.bundle.connect(self._on_bundle)
        thread.ended.connect(self._on_ended)
        thread.send(self._request)
        self._thread = thread
        thread.start()

    def _on_bundle(self, bundle: list[dict[str, Any]]) -> None:
        if self._thread is None or self.sender() is not self._thread:
            return
        for answer in bundle:
            if "failed" in answer:
                self.told.emit(sentence(answer["failed"]))
            else:
                self.device_known.emit(answer["device"])
                text = tr("This run needs {memory} MB of memory ({device}, batch size {batch}) and {cache} MB of disk "
                          "space.")
                self.told.emit(text.format(memory=f"{answer['bytes'] / 2**20:,.0f}", device=answer["device"],
                                           batch=answer["batch"], cache=f"{answer['cache'] / 2**20:,.0f}"))  # fmt: skip

    def _on_ended(self, code: int, errors: str) -> None:
        if self._thread is not None and self.sender() is self._thread:
            thread, self._thread = self._thread, None
            thread.dispose()
