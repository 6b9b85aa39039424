"""How boxes of the copy engine lie in shared memory, and how `wgmma` is told of it.

A box has 64 lines, or as many as its rows of a photo have pixels: a line is a pixel's 16, 32 or 64 channels, 32, 64 or
128 bytes. The copy engine swaps the 16-byte chunks of a line by its number, so that neither `wgmma` nor the threads
meet bank conflicts: chunk c of line r stands at c xor (r mod 8) where lines are 128 bytes, c xor (r / 2 mod 4) for 64,
c xor (r / 4 mod 2) for 32. Eight lines are a block of `wgmma`, whether its rows are the pixels or, read across, the
channels.
Source: PTX ISA 8.x, sections 5.5.6 and 9.7.15.5.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import device_function, types

i32, u32 = types.int32, types.uint32

PIXELS: Final = 64
"""Lines of a box: the rows of a product."""

UNIT: Final = 1024
"""Bytes after which every swizzle begins anew."""

SHARED: Final = 227 << 10
"""Bytes of shared memory that a block can have."""

LONGEST: Final = 256
"""Pixels of a box of rows of a photo, across and down, at most."""

FILLED: Final = 1.6
"""Pixels computed over pixels needed, above which a kernel by rows leaves the layer to another."""

_MODE: Final = {128: 1, 64: 2, 32: 3}


def line_bytes(channels: int) -> int:
    """Bytes of the lines of boxes that hold so many channels, or 64 of them each."""
    return 32 if channels <= 16 else 64 if channels <= 32 else 128


def boxes_of(channels: int) -> int:
    """Boxes side by side."""
    return -(-channels * 2 // line_bytes(channels))


def box_bytes(channels: int) -> int:
    """Bytes of one box."""
    return PIXELS * line_bytes(channels)


def high_word_of(line: int) -> int:
    """Upper half of a descriptor: eight lines from one block to the next, swizzled by as many bytes as a line has."""
    return (8 * line >> 4) | (_MODE[line] << 30)


def make_twist(line: int) -> Any:
    """Device function: what the chunks of a lane's line, number lane / 4 of eight, are swapped by."""
    SHIFT, MASK = {128: (2, 7), 64: (3, 3), 32: (4, 1)}[line]

    @device_function
    def twist(lane):
        return i32((lane >> SHIFT) & MASK)

    return twist
