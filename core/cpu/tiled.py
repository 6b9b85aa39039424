"""Everything that is a sum of products, as one loop nest around the register tile.

A record says for groups g, blocks of columns j, rows r and taps (t1, t2) where A, B and C lie; the
rows of a tile run along M. Convolution: rows are output rows, M runs along a row's pixels.
Weight gradient: rows are blocks of output rows that are summed over, M runs along the input's
channels and the taps move through the filter. Builders of such records: `core.cpu.matmul`.
"""

from __future__ import annotations

from typing import Final

from core.cpu import microkernel
from core.cpu.level import cache_folder, current_level
from core.cpu.memory import words

# Fields 1 to 12 are read by the tile (core.cpu.microkernel).
LDC, LDM, SAM = microkernel.LDC, microkernel.LDM, microkernel.SAM
VECTORS, COLUMNS, PARTS = 13, 14, 15
"""Vectors a tile is wide, valid columns of a group, and from PARTS on three pairs (height, count)."""
A, B, C, X, MASK_AT = range(21, 26)
GROUPS, SAG, SBG, SCG, SMG, SXG = range(26, 32)
BLOCKS, SBJ = 32, 33
ROWS, SAR, SBR, SCR, SMR = range(34, 39)
KH, KH_LAST = 39, 40
T1, SAT1, SCT1, T2, SAT2, SCT2 = range(41, 47)
TASKS: Final = 47
"""Number of tasks of every record, of whatever kernel."""

SAJ: Final = 48
"""Bytes of A from block to block of columns: a depthwise product has channels of its own in A."""

LANES: Final = current_level().lanes
tile = microkernel.make_tile(current_level())
cache_folder()  # named after the sources as they are now, when they are imported


def run_tiled(record, context, photo, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Tasks are (g, j, r), r fastest; all taps and all of M belong to one task."""
    w = words(record)
    vectors, rows, blocks = w[VECTORS], w[ROWS], w[BLOCKS]
    wide = max(vectors, 1)
    width = wide * LANES * 4
    for task in range(low, high):
        r = task % rows
        j = task // rows % blocks
        g = task // rows // blocks
        kh = w[KH_LAST] if r == rows - 1 else w[KH]
        lanes = w[COLUMNS] - (blocks * wide - 1) * LANES if j == blocks - 1 else LANES
        a0 = w[A] + g * w[SAG] + j * w[SAJ] + r * w[SAR]
        b = w[B] + g * w[SBG] + j * w[SBJ] + r * w[SBR]
        c0 = w[C] + g * w[SCG] + j * width + r * w[SCR]
        m0 = w[MASK_AT] + g * w[SMG] + j * width + r * w[SMR]
        x = w[X] + g * w[SXG] + j * width
        for t1 in range(w[T1]):
            for t2 in range(w[T2]):
                a = a0 + t1 * w[SAT1] + t2 * w[SAT2]
                c = c0 + t1 * w[SCT1] + t2 * w[SCT2]
                m = m0
                for part in range(3):
                    height = w[PARTS + 2 * part]
                    shape = vectors * 64 + height
                    for _ in range(w[PARTS + 2 * part + 1]):
                        tile(shape, record, a, b, c, x, m, kh, lanes)
                        a += height * w[SAM]
                        c += height * w[LDC]
                        m += height * w[LDM]
