"""Python's cyclic garbage, collected in the window's thread only.

The interpreter collects in whichever thread happens to allocate, and a Qt object that dies outside its own thread
takes the program along (seen as crashes in a thread that listed a folder). So automatic collection is switched off
and a timer does it here, as often as the interpreter's own thresholds say.
"""

from __future__ import annotations

import gc
from typing import Final, final

from PySide6.QtCore import QObject, QTimer

INTERVAL_MS: Final = 1000
MANY: Final = 100_000
"""Objects that are walked in about 10 ms."""


@final
class Collector(QObject):
    """Collects from its start to `stop`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._was_enabled = gc.isenabled()
        gc.disable()
        gc.collect()
        gc.freeze()  # what is there at the start stays; not walking it keeps a collection at a few milliseconds
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
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
                rest()
            return


def rest() -> None:
    """Walk what has lived long no more where it is much: 100,000 diagnoses are a million objects, which made every
    tenth second stop the window for 0.2 s. Such data goes when nobody names it any more; it has no cycles."""
    if len(gc.get_objects(2)) > MANY:
        gc.freeze()
