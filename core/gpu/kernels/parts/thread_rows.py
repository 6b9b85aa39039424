"""How the threads of a block share pixels of channels out: rows of lanes, each lane some neighbouring channels."""

from __future__ import annotations

from typing import Final

WIDEST: Final = 64
"""Lanes of a row at most."""
BUSY: Final = 0.9
"""Share of the threads of whole warps that is enough: rows of two lanes keep all busy, at half the bandwidth."""


def lanes_a_row(lanes: int, threads: int, widest: int = WIDEST) -> int:
    """The largest divisor of `lanes` that leaves few threads of whole warps idle."""
    widths = [w for w in range(min(lanes, widest, threads), 0, -1) if lanes % w == 0]

    def busy(wide: int) -> float:
        used = threads // wide * wide
        return used / (-(-used // 32) * 32)

    return next((wide for wide in widths if busy(wide) >= BUSY), widths[0])
