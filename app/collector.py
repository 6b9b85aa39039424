"""Runs Python's cyclic garbage collection in the window's thread only.

The interpreter collects in whichever thread happens to allocate, and a Qt object that is deleted outside its own thread
crashes the program. So automatic collection is off, and a timer collects by the interpreter's own thresholds.
"""

from __future__ import annotations

import gc
from typing import Final

from PySide6.QtCore import QObject, QTimer

INTERVAL_MS: Final = 1000
MAX_TRAVERSED: Final = 100_000
"""Objects that are traversed without a noticeable pause."""


class Collector(QObject):
    """Collects from its creation until `stop`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._was_enabled = gc.isenabled()
        gc.disable()
        gc.collect()
        gc.freeze()  # startup objects live on; skipping them keeps a collection at a few milliseconds
        self._timer = QTimer(self, interval=INTERVAL_MS)
        self._timer.timeout.connect(collect)
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()
        gc.unfreeze()
        if self._was_enabled:
            gc.enable()


def collect() -> None:
    """Collect the oldest generation that is due."""
    for generation in (2, 1, 0):
        if gc.get_count()[generation] > gc.get_threshold()[generation]:
            gc.collect(generation)
            if generation == 2:
                freeze_many()
            return


def freeze_many() -> None:
    """Exclude many long-lived objects from later collections.

    100,000 diagnoses are a million objects, which stopped the window every ten seconds. They have no cycles,
    so reference counting frees them.
    """
    if len(gc.get_objects(2)) > MAX_TRAVERSED:
        gc.freeze()
