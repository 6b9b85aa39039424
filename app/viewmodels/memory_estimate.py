"""The memory a run will need, computed by a process after the settings stopped changing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from PySide6.QtCore import QObject, QTimer, Signal

from app.translation import sentence, tr
from app.viewmodels.process_model import ProcessModel

DELAY_MS: Final = 1200
"""Delay after the last edit: an estimate takes a second of a core."""


class MemoryEstimate(ProcessModel):
    """`estimated(text)`: a line for the form, "" while unknown; `device_known(name)`: the device of a run."""

    estimated = Signal(str)
    device_known = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._request: dict[str, Any] = {}
        self._rest = QTimer(self, singleShot=True, interval=DELAY_MS)
        self._rest.timeout.connect(lambda: self._start_process("memory", self._request))

    def ask(self, config: dict[str, Any], counts: Sequence[int]) -> None:
        """Request an estimate for these settings and photos of each class; an earlier request is cancelled."""
        self.forget()
        self._request = {"config": config, "counts": list(counts)}
        self._rest.start()

    def forget(self) -> None:
        self._rest.stop()
        self.estimated.emit("")
        self._end_process()

    close = forget

    def _read(self, answer: dict[str, Any]) -> None:
        self.device_known.emit(answer["device"])
        memory, cache = (f"{answer[size] / 2**20:,.0f}" for size in ("bytes", "cache"))
        self.estimated.emit(tr(
            "This run needs {memory} MB of memory ({device}, batch size {batch}) and {cache} MB of disk space.",
            memory=memory, device=answer["device"], batch=answer["batch"], cache=cache,
        ))  # fmt: skip

    def _fail(self, message: str) -> None:
        self.estimated.emit(sentence(message))
