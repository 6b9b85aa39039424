"""Launches of Hopper's 3x3 and photo convolutions (`wgmma`): geometry, packed filters, kernel arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.gpu.compilation.compiler import Recipe
from core.gpu.kernels.hopper import halo_resident, halo_warpgroup, photo_gradient_warpgroup, photo_pool_warpgroup
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import RELU, Launch, Tensor, blocks_of
from core.gpu.ops.conv.packing import Taps, pack_forward, partial_size, taps_of
from core.graph import Shape
from core.ops.contract import Array
from core.ops.window import Window

PART: Final = 8
"""bf16 channels of a part: 16 bytes."""


def pack_parts(weights: Sequence[Array], size: int, backward: bool) -> Array:
    """Filters ``(channel blocks, 9 or 10 taps, parts, columns, 8)`` of indices, from OHWI ones; blocks of `size` bytes.

    Backward they are rotated, columns are the input's channels, and the 1x1 filters that follow are the tenth tap.
    """
    block = size // 2
    sides = [w[:, ::-1, ::-1].transpose(3, 1, 2, 0) if backward else w for w in weights]
    columns, blocks = -(-len(sides[0]) // PART) * PART, -(-sides[0].shape[3] // block)
    packed = np.full((blocks, 9 + len(sides) - 1, block // PART, columns, PART), -1, np.int32)
    for first, side in zip((0, 9), sides, strict=False):
        count, taps, channels = len(side), side.shape[1] * side.shape[2], side.shape[3]
        wide = np.full((count, taps, blocks * block), -1, np.int32)
        wide[:, :, :channels] = side.reshape(count, taps, channels)
        parts = wide.reshape(count, taps, blocks, block // PART, PART)
        packed[:, first : first + taps, :, :count] = parts.transpose(2, 1, 3, 0, 4)
    return packed


def halo(
    layer: str, direction: str, batch: int, x: Tensor, out: Tensor, weight: int, bias: int, activation: str,
    mask: Tensor | None, masking: str, accumulate: bool, second: int, tile: Tile,
) -> Launch:  # fmt: skip
    """As `ops.conv.products.halo_product`, in bf16, with filters of `pack_parts` in blocks of the tile's depth."""
    columns, limit = out.padded, batch * (x.height + 1) * (x.width + 1)
    blocks = x.padded * 2 // tile.depth
    values = (
        x.address, weight, bias, out.address, mask.address if mask else 0, limit, columns,
        halo_warpgroup.part_pixels(tile, x.width, bool(second)),
        *fast_divisor((x.height + 1) * (x.width + 1)), *fast_divisor(x.width + 1), x.height, x.width, x.pitch, blocks,
        -second, out.pitch, mask.pitch if mask else 0, RELU[activation], RELU[masking] if mask else 0, int(accumulate),
    )  # fmt: skip
    kinds = tuple(str(a) for a in halo_warpgroup.ARGUMENTS)
    recipe = Recipe(
        "hopper.halo_warpgroup", "make_halo_products", (tile.numbers, bool(second)), kinds, tile.threads, tile.blocks
    )
    rows = batch * x.height * x.width
    return Launch(
        layer, direction, "tensor_core", recipe, (blocks_of(limit, tile.rows), blocks_of(columns, tile.columns), 1),
        (tile.threads, 1, 1), halo_warpgroup.shared_bytes(tile, x.width, blocks, bool(second)), values,
        flops=2 * rows * columns * (9 * x.padded + second),
        bytes=2 * rows * (x.padded + second + columns * (1 + int(accumulate) + (mask is not None))),
    )  # fmt: skip


def resident_halo(
    layer: str, batch: int, x: Tensor, out: Tensor, weight: int, bias: int, activation: str, tile: Tile, processors: int
) -> Launch:
    """The same forward, with all filters of a block in shared memory: the tile's depth are all channels."""
    columns, limit = out.padded, batch * (x.height + 1) * (x.width + 1)
    groups = tile.warp_rows // 4
    tiles = blocks_of(limit, tile.rows // groups)
    values = (
        x.address, weight, bias, out.address, limit, tiles, columns, halo_resident.room_of(tile, x.width),
        *fast_divisor((x.height + 1) * (x.width + 1)), *fast_divisor(x.width + 1), x.height, x.width, x.pitch,
        out.pitch, RELU[activation],
    )  # fmt: skip
    kinds = tuple(str(a) for a in halo_resident.ARGUMENTS)
    recipe = Recipe("hopper.halo_resident", "make_resident_halo", (tile.numbers,), kinds, tile.threads, tile.blocks)
    across, rows = columns // tile.columns, batch * x.height * x.width
    down = min(blocks_of(tiles, groups), max(1, tile.blocks * processors // across))
    return Launch(
        layer, "forward", "tensor_core", recipe, (down, across, 1), (tile.threads, 1, 1),
        halo_resident.shared_bytes(tile, x.width), values, flops=2 * rows * columns * 9 * x.padded,
        bytes=2 * rows * (x.padded + columns),
    )  # fmt: skip


def pack_photo(weight: Array, taps: Taps) -> Array:
    """Filters of a photo's convolution ``(parts, filters, 8)`` of indices, from OHWI ones."""
    rows = pack_forward(weight, taps, 2)[:, : taps.total]
    return np.ascontiguousarray(rows.reshape(len(rows), -1, PART).transpose(1, 0, 2))


def suits_photo(x: Tensor, window: Window, out: Shape, training: bool, limit: int) -> bool:
    """Whether the kernels for Hopper compute a photo's convolution: windows 16 bytes apart, memory suffices."""
    (kernel, width), (_, wide, filters) = window.kernel, out
    lies = (x.element, x.pitch) == (2, 4) and x.row_pitch % 8 == 0 and x.photo_pitch == x.height * x.row_pitch
    if not lies or window.stride != (2, 2) or window.padding[:2] != (0, 0) or kernel not in (3, 5, 7) or width > 8:
        return False
    if filters not in (32, 64, 96, 128) or wide > x.row_pitch // 8:
        return False
    room, steps = x.row_pitch // 8, taps_of(x, window, True).channels // 16
    parts = 2 * steps
    shared = photo_pool_warpgroup.shared_bytes(kernel, steps, _columns(filters), room)
    if training:
        gradient = photo_gradient_warpgroup.shared_bytes(room, parts, blocks_of(wide, 16), filters, wide // 2)
        shared = max(shared, gradient)
    return shared <= limit


def _columns(filters: int) -> int:
    """Filters of a block: half of many, so that two blocks share a multiprocessor."""
    return filters // 2 if filters > 64 else filters


def photo_pool(
    layer: str, batch: int, x: Tensor, whole: Tensor, out: Tensor, places: int | None, window: Window, taps: Taps,
    weight: int, bias: int, activation: str, processors: int, groups: int = 0,
) -> Launch:  # fmt: skip
    """The launch of a photo's convolution and of the 3x3 pool of stride 2 after it.

    `whole` is the convolution's output, at address 0 where nobody looks at it; `places` None keeps no winners.
    """
    room, steps, filters = x.row_pitch // 8, taps.channels // 16, whole.channels
    columns = _columns(filters)
    groups = groups or (4 if columns <= 48 else 3)  # as many as registers allow, two blocks a multiprocessor
    shared = photo_pool_warpgroup.shared_bytes(window.kernel[0], steps, columns, room)
    all_turns, parts = blocks_of(out.height, 2), filters // columns
    resident = 2 * processors // parts

    def turns_in_all(strips: int) -> float:
        """Of the busiest place; half a turn goes to a strip's first row."""
        return blocks_of(batch * strips, resident) * (blocks_of(all_turns, strips) + 0.5)

    turns = blocks_of(all_turns, min(range(1, all_turns + 1), key=turns_in_all))
    strips = blocks_of(all_turns, turns)
    values = (
        x.address, weight, bias, out.address, places or 0, whole.address, strips, turns, all_turns,
        filters, *fast_divisor(strips), whole.height, whole.width, out.height, out.width, x.height, room,
        x.photo_pitch * 2, *fast_divisor(room), out.pitch, out.padded, RELU[activation],
    )  # fmt: skip
    kinds = tuple(str(a) for a in photo_pool_warpgroup.ARGUMENTS)
    shape = (window.kernel[0], steps, columns, groups, places is not None)
    recipe = Recipe("hopper.photo_pool_warpgroup", "make_photo_pool", shape, kinds, 128 * groups, 2)
    total, pooled = batch * whole.height * whole.width, batch * out.height * out.width * out.padded
    return Launch(
        layer, "forward", "tensor_core", recipe, (batch * strips, parts, 1), (128 * groups, 1, 1), shared, values,
        flops=2 * total * filters * taps.total, bytes=2 * batch * x.photo_pitch + pooled * (2 + (places is not None)),
    )  # fmt: skip


def photo_gradient(
    layer: str, batch: int, x: Tensor, between: Shape, dy: Tensor, places: int, window: Window, taps: Taps,
    processors: int,
) -> tuple[Launch, int]:  # fmt: skip
    """The launch of the partial weight gradients of a photo's convolution, and how many there are.

    `dy` is the gradient behind the 3x3 pool of stride 2 after it, `between` the shape of what is between them. The
    partial results' address is left out, as the third argument.
    """
    (height, width, filters), room = between, x.row_pitch // 8
    steps, parts = blocks_of(width, 16), taps.channels // 8
    shared = photo_gradient_warpgroup.shared_bytes(room, parts, steps, filters, dy.width)
    turns = blocks_of(height, photo_gradient_warpgroup.ROWS)
    total = batch * turns
    each = blocks_of(total, processors)
    splits = blocks_of(total, each)
    size = partial_size(filters, taps)
    values = (
        x.address, dy.address, 0, places, total, each, turns, *fast_divisor(turns), dy.height, dy.width, x.height,
        room, x.photo_pitch * 2, taps.channels, taps.total, size,
    )  # fmt: skip
    kinds = tuple(str(a) for a in photo_gradient_warpgroup.ARGUMENTS)
    recipe = Recipe(
        "hopper.photo_gradient_warpgroup", "make_photo_gradient", (window.kernel[0], parts, steps, filters, 3), kinds,
        128 * parts,
    )  # fmt: skip
    pixels = batch * height * width
    launch = Launch(
        layer, "backward_weight", "tensor_core", recipe, (splits, 1, 1), (128 * parts, 1, 1), shared, values,
        flops=2 * pixels * filters * taps.total,
        bytes=2 * batch * x.photo_pitch + 3 * batch * dy.height * dy.width * dy.padded + 4 * splits * size,
    )  # fmt: skip
    return launch, splits
