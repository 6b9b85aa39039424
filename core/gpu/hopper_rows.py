"""Launches of Hopper's weight gradients of 3x3 convolutions by the copy engine: geometry and kernel arguments."""

from __future__ import annotations

from core.gpu.compiler import Recipe
from core.gpu.kernels import row_gradient_boxes
from core.gpu.kernels.fragments import fast_divisor
from core.gpu.kernels.row_gradient_boxes import RowBoxes
from core.gpu.launch import Launch, Tensor, blocks_of
from core.gpu.tensor_map import PhotoMap


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
    recipe = Recipe("row_gradient_boxes", "make_row_boxes", shape.numbers, row_gradient_boxes.KINDS, threads)
    pixels = batch * x.height * x.width
    launch = Launch(
        layer, "backward_weight", "tensor_core", recipe, (splits, across, 1), (threads, 1, 1), shape.shared, values,
        flops=2 * pixels * filters * depth, bytes=2 * pixels * (x.padded + filters) + 4 * splits * size,
    )  # fmt: skip
    return launch, splits
