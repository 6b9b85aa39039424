"""The loop nest around the register tile, for every sum of products.

A record gives the addresses of A, B and C for groups g, blocks of columns j, rows r and taps (t1, t2); the
rows of a tile run along M. Convolution: rows are output rows, M runs along a row's pixels. Weight gradient: rows are
blocks of output rows that are summed over, M runs along the input's channels and the taps move through the filter.
`core.cpu.convolution` lists such records.

Dense layers of a whole batch (`core.cpu.products`): M or the sum runs over images, whose number the context has.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.cpu import microkernel
from core.cpu.activation import CLIP, activate
from core.cpu.context import ADD, COUNT
from core.cpu.instruction_set import InstructionSet, cache_folder, current_isa
from core.cpu.memory import TASKS, floats, words

# Fields 1 to 12 are read by the tile (core.cpu.microkernel).
LDC, LDM, SAM = microkernel.LDC, microkernel.LDM, microkernel.SAM
VECTORS, COLUMNS, PARTS = 13, 14, 15
"""Vectors in the width of a tile, valid columns of a group, and from PARTS on three pairs (height, count)."""
# Strides in bytes are named S, array, loop: SAG leads from one group to the next in A (J: block of columns, R: row).
A, B, C, X, MASK_AT = range(21, 26)
GROUPS, SAG, SBG, SCG, SMG, SXG = range(26, 32)
BLOCKS, SBJ = 32, 33
ROWS, SAR, SBR, SCR, SMR = range(34, 39)
KH, KH_LAST = 39, 40
T1, SAT1, SCT1, T2, SAT2, SCT2 = range(41, 47)
SAJ: Final = 48
"""Stride of A between blocks of columns, for depthwise products."""

AT_ONCE: Final = 49
"""Rows of one task of `run_tiled_batch`."""

HEIGHT: Final = 50
"""Rows of C if the images of a batch are summed over; 0 if each image is a row."""

BY_ROW: Final = 51
"""1: blocks run fastest in the order of tasks, and threads share the rows; 0: rows run fastest, and threads share the
columns."""

ACTIVATION: Final = 52
"""Number of the activation of a forward product (`core.cpu.activation`); the tile itself applies a clip."""

TILES: Final = 53
"""Address of the table of tiles."""

VECTOR_WIDTH: Final = current_isa().vector_width
tile = microkernel.make_tile(current_isa())
cache_folder()  # named after the sources as they are now, when they are imported

HIGHEST: Final = 14


def _heights(isa: InstructionSet) -> np.ndarray:
    """Return the highest compiled tile by (vectors, rows left)."""
    table = np.zeros((max(isa.tile_heights) + 1, HIGHEST + 1), np.int64)
    for vectors, heights in isa.tile_heights.items():
        for left in range(1, HIGHEST + 1):
            table[vectors, left] = max(h for h in heights if h <= left)
    return table


_HEIGHTS: Final = _heights(current_isa())


def run_tiled(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are (g, j, r), r fastest, or (r, g, j); all taps and all of M belong to one task."""
    w = words(record)
    vectors, rows, blocks = w[VECTORS], w[ROWS], w[BLOCKS]
    wide = max(vectors, 1)
    width = wide * VECTOR_WIDTH * 4
    planes = w[TASKS] // rows
    for task in range(low, high):
        r, plane = (task // planes, task % planes) if w[BY_ROW] else (task % rows, task // rows)
        j, g = plane % blocks, plane // blocks
        kh = w[KH_LAST] if r == rows - 1 else w[KH]
        lanes = w[COLUMNS] - (blocks * wide - 1) * VECTOR_WIDTH if j == blocks - 1 else VECTOR_WIDTH
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
                        tile(w[TILES], shape, record, a, b, c, x, m, kh, lanes)
                        if w[ACTIVATION] > CLIP:
                            activate(w[ACTIVATION], c, w[LDC], height, (wide - 1) * VECTOR_WIDTH + lanes)
                        a += height * w[SAM]
                        c += height * w[LDC]
                        m += height * w[LDM]


def run_tiled_batch(record: int, context: int, image: int, low: int, high: int) -> None:
    """Compute a dense layer of all images. Tasks are blocks of `AT_ONCE` rows; the last may have fewer, or none."""
    w, run = words(record), words(context)
    vectors, rows, blocks = w[VECTORS], w[ROWS], w[BLOCKS]
    width = vectors * VECTOR_WIDTH * 4
    all_rows = w[HEIGHT] if w[HEIGHT] else run[COUNT]
    kh = run[COUNT] if w[HEIGHT] else w[KH]
    for task in range(low, high):
        first = task % rows * w[AT_ONCE]
        j = task // rows % blocks
        g = task // rows // blocks
        lanes = w[COLUMNS] - (blocks * vectors - 1) * VECTOR_WIDTH if j == blocks - 1 else VECTOR_WIDTH
        a = w[A] + g * w[SAG] + first * w[SAM]
        b = w[B] + g * w[SBG] + j * w[SBJ]
        c = w[C] + g * w[SCG] + j * width + first * w[LDC]
        m = w[MASK_AT] + g * w[SMG] + j * width + first * w[LDM]
        x = w[X] + g * w[SXG] + j * width
        left = min(w[AT_ONCE], all_rows - first)
        while left > 0:
            height = _HEIGHTS[vectors, min(left, HIGHEST)]
            if w[HEIGHT] and not run[ADD]:
                for i in range(height):
                    line = floats(c + i * w[LDC], (vectors - 1) * VECTOR_WIDTH + lanes)
                    for column in range(len(line)):
                        line[column] = 0
            tile(w[TILES], vectors * 64 + height, record, a, b, c, x, m, kh, lanes)
            if w[ACTIVATION] > CLIP:
                activate(w[ACTIVATION], c, w[LDC], height, (vectors - 1) * VECTOR_WIDTH + lanes)
            a += height * w[SAM]
            c += height * w[LDC]
            m += height * w[LDM]
            left -= height
