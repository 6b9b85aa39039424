"""How the threads of a block share pixels of channels out: rows of lanes, each lane some neighbouring channels."""

from __future__ import annotations

from typing import Final

from core.gpu.launch import blocks_of

WIDEST: Final = 64
"""Lanes of a row at most."""


def lanes_a_row(lanes: int, threads: int) -> int:
    """A divisor of `lanes` that leaves the fewest threads of whole warps idle; the largest of those."""
    widths = [w for w in range(1, min(lanes, WIDEST, threads) + 1) if lanes % w == 0]

    def busy(wide: int) -> float:
        used = threads // wide * wide
        return used / (blocks_of(used, 32) * 32)

    return max(widths, key=lambda wide: (busy(wide), wide))
