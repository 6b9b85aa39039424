"""Waiting in Qt's event loop, and how long it could not react."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PySide6.QtCore import QEventLoop, QObject, Qt, QTimer

TICK_MS = 5


class Gaps(QObject):
    """Milliseconds between the ticks of a timer beyond its interval: for so long the window could not react."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []
        self._last = time.perf_counter()
        self._timer = QTimer(self, interval=TICK_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._tick)

    def start(self) -> None:
        self.found = []
        self._last = time.perf_counter()
        self._timer.start()

    def stop(self) -> np.ndarray[Any, Any]:
        self._timer.stop()
        return np.array(self.found)

    def until(self, do: Callable[[], object], done: Callable[[], bool]) -> float:
        """Do it, from the event loop as a click does; the seconds until it is done."""
        begin = time.perf_counter()
        QTimer.singleShot(0, do)
        wait(0)
        until(done)
        return time.perf_counter() - begin

    def _tick(self) -> None:
        now = time.perf_counter()
        self.found.append(max(1000 * (now - self._last) - TICK_MS, 0.0))
        self._last = now


def wait(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def until(done: Callable[[], bool], seconds: float = 300, every_ms: int = 1) -> float:
    """Run the event loop until something holds; the seconds it took. Looking often takes time from what trains."""
    begin = time.perf_counter()
    loop = QEventLoop()
    timer = QTimer(interval=every_ms)
    timer.timeout.connect(lambda: loop.quit() if done() or time.perf_counter() - begin > seconds else None)
    timer.start()
    loop.exec()
    timer.stop()
    if not done():
        raise SystemExit(f"nothing after {seconds:g} s")
    return time.perf_counter() - begin
