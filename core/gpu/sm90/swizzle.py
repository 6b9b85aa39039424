"""The XOR swizzle of TMA tiles in shared memory, and the descriptor by which `wgmma` reads it.

A tile has 64 lines, or as many as its rows of a feature map have pixels. A line holds 16, 32 or 64 channels of a
pixel: 32, 64 or 128 bytes. TMA permutes the 16-byte chunks of a line so that neither `wgmma` nor the threads meet bank
conflicts; chunk c of line r is at

    128 bytes: c xor (r mod 8)      64 bytes: c xor (r / 2 mod 4)      32 bytes: c xor (r / 4 mod 2)

Eight lines are one core matrix of `wgmma`, whether its rows are the pixels or, transposed, the channels. The swizzle
follows from the address, not from the tile, so a factor may begin at any line.
Source: PTX ISA 8.x, sections 5.5.6 and 9.7.15.5.
"""

from __future__ import annotations

from typing import Any, Final

from core.gpu.compilation.cuda import device_function, types

i32, u32 = types.int32, types.uint32

PIXELS: Final = 64
"""Lines of a tile of a matrix: the rows of a product."""

PERIOD: Final = 1024
"""Bytes after which every swizzle repeats: alignment of a tile."""

SHARED: Final = 227 << 10
"""Bytes of shared memory that a block can have."""

LONGEST: Final = 256
"""Pixels of a tile of a feature map, across and down, at most."""

PADDING: Final = 1.6
"""Pixels computed over pixels needed, above which a kernel by rows leaves the layer to another."""

_MODE: Final = {128: 1, 64: 2, 32: 3}


def line_bytes(channels: int) -> int:
    """Bytes of the lines of tiles that hold so many channels, or 64 of them each."""
    return 32 if channels <= 16 else 64 if channels <= 32 else 128


def tiles_of(channels: int) -> int:
    """Tiles side by side."""
    return -(-channels * 2 // line_bytes(channels))


def tile_bytes(channels: int) -> int:
    """Bytes of one tile."""
    return PIXELS * line_bytes(channels)


def swizzled_high_word(line: int) -> int:
    """Upper half of a descriptor: eight lines from one core matrix to the next, swizzled by a line's bytes."""
    return (8 * line >> 4) | (_MODE[line] << 30)


@device_function
def aligned(address):
    """The first address from this one on where a swizzled tile may begin."""
    return u32((u32(address) + u32(PERIOD - 1)) & u32(-PERIOD & 0xFFFFFFFF))


def make_xor(line: int) -> Any:
    """Device function: what the chunks of a lane's line, number lane / 4 of eight, are permuted by."""
    SHIFT, MASK = {128: (2, 7), 64: (3, 3), 32: (4, 1)}[line]

    @device_function
    def xor(lane):
        return i32((lane >> SHIFT) & MASK)

    return xor
