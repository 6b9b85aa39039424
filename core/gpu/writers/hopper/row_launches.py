"""Launches of Hopper's 3x3 convolutions whose rows the copy engine brings: geometry and kernel arguments."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.compilation.compiler import Recipe
from core.gpu.driver.tensor_map import PhotoMap
from core.gpu.kernels.hopper import halo_boxes as halo_boxes_kernel
from core.gpu.kernels.hopper import row_gradient_boxes
from core.gpu.kernels.hopper.halo_boxes import HaloBoxes
from core.gpu.kernels.hopper.row_gradient_boxes import RowBoxes
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.launch import RELU, Launch, Tensor, blocks_of


def photos_of(x: Tensor, batch: int, rows: int, width: int, channels: int) -> PhotoMap:
    """All of `x` in boxes of so many rows, pixels of a row and channels."""
    return PhotoMap(x.address, batch, x.height, x.width, x.padded, x.pitch, rows, width, channels)


def row_boxes(
    layer: str, batch: int, x: Tensor, dy: Tensor, shape: RowBoxes, processors: int
) -> tuple[Launch, int]:
    """The launch of the partial weight gradients of a 3x3 convolution of stride 1, and how many there are.

    The partial results' address is left out, as the third argument.
    """
    assert shape.channels == x.padded
    assert shape.pitch > x.width
    filters, depth = dy.padded, 9 * x.padded
    across, turns = filters // (64 * shape.tiles), blocks_of(x.height, shape.rows)
    total, size = batch * turns, filters * depth + filters
    each = blocks_of(total, max(1, processors // across))
    splits = blocks_of(total, each)
    values = (
        photos_of(x, batch, shape.rows + 2, shape.pitch, shape.line),
        photos_of(dy, batch, shape.rows, shape.pitch, row_gradient_boxes.FILTER_LINE // 2),
        0, total, each, turns, *fast_divisor(turns), filters, size,
    )  # fmt: skip
    threads = row_gradient_boxes.THREADS
    recipe = Recipe("hopper.row_gradient_boxes", "make_row_boxes", shape.numbers, row_gradient_boxes.KINDS, threads)
    pixels = batch * x.height * x.width
    launch = Launch(
        layer, "backward_weight", "tensor_core", recipe, (splits, across, 1), (threads, 1, 1), shape.shared, values,
        flops=2 * pixels * filters * depth, bytes=2 * pixels * (x.padded + filters) + 4 * splits * size,
    )  # fmt: skip
    return launch, splits


def halo_boxes(
    layer: str, batch: int, dy: Tensor, dx: Tensor, weight: int, mask: Tensor | None, masking: str, accumulate: bool,
    second: int, shape: HaloBoxes,
) -> Launch:  # fmt: skip
    """As `window_launches.halo` for an input gradient, with filters of `pack_parts` in blocks of a line."""
    assert shape.columns == dx.padded
    assert second == dy.padded == shape.blocks * shape.line
    beside, turns = replace(dy, address=dy.address - 2 * second), blocks_of(dy.height, shape.rows)
    values = (
        photos_of(dy, batch, shape.rows + 2, shape.pitch, shape.line),
        photos_of(beside, batch, shape.rows, shape.pitch, shape.line),
        weight, dx.address, mask.address if mask else 0, turns, dy.height, dy.width,
        *fast_divisor(turns), *fast_divisor(shape.pitch), dx.pitch, mask.pitch if mask else 0,
        RELU[masking] if mask else 0, int(accumulate),
    )  # fmt: skip
    recipe = Recipe("hopper.halo_boxes", "make_halo_boxes", shape.numbers, halo_boxes_kernel.KINDS, shape.threads)
    rows = batch * dy.height * dy.width
    return Launch(
        layer, "backward_input", "tensor_core", recipe, (batch * turns, 1, 1), (shape.threads, 1, 1), shape.shared,
        values, flops=2 * rows * dx.padded * 10 * dy.padded,
        bytes=2 * rows * (2 * dy.padded + dx.padded * (1 + int(accumulate) + (mask is not None))),
    )  # fmt: skip
