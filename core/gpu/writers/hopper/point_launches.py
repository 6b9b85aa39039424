"""Launches of Hopper's 1x1 convolutions, whose pixels the copy engine brings and takes: geometry and packed filters."""

from __future__ import annotations

from typing import Final

import numpy as np

from core.gpu.compilation.compiler import Recipe
from core.gpu.driver.tensor_map import TensorMap
from core.gpu.kernels.hopper import point_boxes, point_filters, point_gradients
from core.gpu.kernels.parts.box_lines import PIXELS, line_bytes
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import RELU, Launch, Tensor, blocks_of
from core.ops.contract import Array

PART: Final = 8
"""bf16 channels of a part: 16 bytes."""


def pack_points(weight: Array, parts: int) -> Array:
    """Filters ``(parts, filters up to 8, 8)`` of indices for the forward product, from OHWI ones of 1x1."""
    rows = weight[:, 0, 0]
    wide = np.full((-(-len(rows) // PART) * PART, parts * PART), -1, np.int32)
    wide[: len(rows), : rows.shape[1]] = rows
    return np.ascontiguousarray(wide.reshape(len(wide), parts, PART).transpose(1, 0, 2))


def pack_point_gradients(weight: Array, parts: int, columns: int) -> Array:
    """Filters ``(parts, columns, 8)`` of indices for the input gradient: a column is a channel, parts hold filters."""
    rows = weight[:, 0, 0]
    wide = np.full((parts * PART, columns), -1, np.int32)
    wide[: len(rows), : rows.shape[1]] = rows
    return np.ascontiguousarray(wide.reshape(parts, PART, columns).transpose(0, 2, 1))


def lies_in_rows(x: Tensor) -> bool:
    """Whether pixels lie at one distance: a matrix for the copy engine."""
    return x.element == 2 and x.row_pitch == x.width * x.pitch and x.photo_pitch == x.height * x.row_pitch


def _map(x: Tensor, pixels: int, channels: int) -> TensorMap:
    """Boxes that hold so many channels, or 64 of them each."""
    return TensorMap(x.address, pixels, x.padded, x.pitch, PIXELS, line_bytes(channels) // 2)


def point(
    layer: str, batch: int, x: Tensor, out: Tensor, weight: int, bias: int, activation: str, tile: Tile, processors: int
) -> Launch:
    """The launch of ``activation(x W + bias)`` with filters of `pack_points`; the tile's depth are all channels."""
    pixels, across = batch * out.height * out.width, out.padded // tile.columns
    tiles = blocks_of(pixels, PIXELS)
    values = (
        _map(x, pixels, x.padded), _map(out, pixels, tile.columns), weight, bias, tiles, out.padded,
    )  # fmt: skip
    threads = point_boxes.threads_of(tile)
    made = (tile.numbers, RELU[activation])
    recipe = Recipe("hopper.point_boxes", "make_point_convolution", made, point_boxes.KINDS, threads, tile.blocks)
    down = min(blocks_of(tiles, tile.warp_rows // 4), max(1, tile.blocks * processors // across))
    return Launch(
        layer, "forward", "tensor_core", recipe, (down, across, 1), (threads, 1, 1), point_boxes.shared_bytes(tile),
        values, flops=2 * pixels * out.padded * x.padded, bytes=2 * pixels * (x.padded + out.padded),
    )  # fmt: skip


def gradient_columns(channels: int, tile: Tile) -> int:
    """Channels up to whole blocks of the tile."""
    return blocks_of(channels, tile.columns) * tile.columns


def gradients(
    layer: str, batch: int, x: Tensor, dy: Tensor, dx: Tensor, weight: int, masking: str, size: int, tile: Tile,
    processors: int,
) -> tuple[Launch, int]:  # fmt: skip
    """The launch of dx and of the partial weight gradients, `size` floats each, and how many there are.

    x is the mask too, of the activation `masking`. Filters are those of `pack_point_gradients`; the partial results'
    address is left out, as the third argument.
    """
    pixels, columns = batch * x.height * x.width, gradient_columns(x.padded, tile)
    tiles, across = blocks_of(pixels, PIXELS), columns // tile.columns
    splits = min(tiles, max(1, tile.blocks * processors // across))
    values = (
        _map(x, pixels, point_gradients.CHANNELS), _map(dy, pixels, dy.padded), 0,
        _map(dx, pixels, point_gradients.CHANNELS), weight, tiles, columns, x.padded, size,
    )  # fmt: skip
    threads = point_gradients.threads_of(tile)
    recipe = Recipe(
        "hopper.point_gradients", "make_point_gradients", (tile.numbers, RELU[masking]), point_gradients.KINDS, threads,
        tile.blocks,
    )  # fmt: skip
    launch = Launch(
        layer, "backward_input", "tensor_core", recipe, (splits, across, 1), (threads, 1, 1),
        point_gradients.shared_bytes(tile), values, flops=4 * pixels * x.padded * dy.padded,
        bytes=2 * pixels * (2 * x.padded + dy.padded) + 4 * splits * size,
    )  # fmt: skip
    return launch, splits


def filter_gradients(
    layer: str, batch: int, x: Tensor, dy: Tensor, size: int, tile: Tile, processors: int
) -> tuple[Launch, int]:
    """The launch of the partial weight gradients alone, `size` floats each, and how many; x has at most 64 channels.

    The partial results' address is left out, as the third argument.
    """
    pixels, across = batch * x.height * x.width, blocks_of(dy.padded, tile.columns)
    tiles = blocks_of(pixels, PIXELS)
    splits = min(tiles, max(1, tile.blocks * processors // across))
    wide, narrow = _map(dy, pixels, point_gradients.CHANNELS), _map(x, pixels, x.padded)
    threads = point_filters.threads_of(tile)
    recipe = Recipe(
        "hopper.point_filters", "make_point_filters", (tile.numbers,), point_filters.KINDS, threads, tile.blocks
    )
    launch = Launch(
        layer, "backward_weight", "tensor_core", recipe, (splits, across, 1), (threads, 1, 1),
        point_filters.shared_bytes(tile), (wide, narrow, 0, tiles, dy.padded, size),
        flops=2 * pixels * x.padded * dy.padded, bytes=2 * pixels * (x.padded + dy.padded) + 4 * splits * size,
    )  # fmt: skip
    return launch, splits
