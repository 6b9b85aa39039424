"""Tiles that tuning may try for the convolutions' products: each was the fastest of some shape on one H200.

Numbers are those of `Tile`: rows, columns, bytes of a stage's row (for weight gradients pixels of a stage), stages,
warps along rows and columns, blocks a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from core.gpu.frame import Frame
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import Tensor
from core.gpu.ops.conv import halo, implicit_gemm, weight_gradient
from core.gpu.ops.conv.geometry import is_fire
from core.gpu.ops.conv.products import channel_bytes
from core.gpu.select import FORWARD, Case
from core.gpu.writers.tiles import WASTE

PRODUCT: Final = {
    "bf16": (
        (16, 16, 128, 4, 1, 2, 4), (16, 32, 128, 4, 1, 4, 4), (16, 64, 128, 4, 1, 4, 3), (32, 32, 128, 4, 2, 2, 4),
        (32, 64, 64, 4, 2, 2, 4), (64, 16, 128, 3, 4, 1, 4), (64, 32, 64, 3, 4, 1, 4), (64, 64, 64, 2, 2, 2, 6),
        (64, 64, 64, 3, 2, 2, 4), (64, 64, 64, 3, 2, 2, 6), (64, 64, 128, 3, 2, 2, 3), (64, 96, 64, 3, 2, 2, 4),
        (64, 128, 64, 2, 2, 2, 4), (64, 128, 64, 3, 2, 2, 4), (64, 128, 64, 3, 2, 4, 3), (64, 128, 128, 2, 2, 4, 3),
        (64, 160, 128, 2, 2, 2, 2), (128, 16, 64, 3, 4, 1, 4), (128, 16, 128, 3, 4, 1, 4), (128, 32, 64, 3, 4, 1, 4),
        (128, 48, 64, 3, 4, 1, 2), (128, 48, 128, 3, 4, 1, 2), (128, 64, 64, 2, 4, 2, 3), (128, 64, 64, 3, 2, 2, 3),
        (128, 64, 128, 3, 4, 2, 2), (128, 80, 64, 3, 4, 1, 3), (128, 96, 64, 3, 4, 2, 2), (128, 128, 64, 3, 2, 4, 2),
        (128, 128, 64, 3, 4, 2, 2), (128, 128, 128, 2, 4, 2, 2), (256, 16, 64, 3, 8, 1, 2), (256, 32, 64, 3, 4, 1, 2),
    ),
    "float32": (
        (16, 16, 128, 4, 1, 2, 4), (16, 32, 128, 4, 1, 2, 4), (16, 32, 128, 4, 1, 4, 4), (32, 16, 128, 4, 2, 2, 4),
        (32, 64, 64, 4, 2, 2, 4), (64, 32, 64, 3, 2, 2, 4), (64, 64, 64, 3, 2, 2, 3), (128, 16, 64, 3, 4, 1, 4),
        (128, 32, 64, 3, 4, 1, 3), (128, 64, 64, 3, 2, 2, 2), (128, 96, 64, 3, 2, 2, 2),
    ),
}  # fmt: skip
"""Of the implicit product, forward and input gradient."""

HALO: Final = {
    "bf16": (
        (128, 16, 64, 2, 4, 1, 4), (128, 48, 64, 2, 4, 1, 2), (128, 64, 64, 2, 2, 2, 3), (128, 64, 64, 3, 2, 2, 2),
        (128, 64, 64, 3, 4, 2, 2), (128, 96, 32, 2, 2, 2, 2), (256, 16, 64, 2, 4, 1, 4), (256, 16, 64, 3, 8, 1, 2),
        (256, 32, 64, 2, 4, 1, 2), (256, 48, 64, 2, 8, 1, 1), (256, 64, 32, 2, 4, 2, 2), (256, 64, 64, 2, 4, 2, 2),
        (256, 64, 64, 3, 4, 2, 1),
    ),
    "float32": (
        (64, 32, 64, 2, 2, 2, 4), (64, 48, 64, 2, 4, 1, 3), (64, 64, 64, 3, 2, 2, 3), (128, 16, 64, 2, 4, 1, 4),
        (128, 32, 64, 2, 4, 1, 3), (128, 64, 64, 2, 2, 2, 2), (128, 96, 64, 2, 2, 2, 2),
    ),
}  # fmt: skip
"""Of the product with pixels in shared memory."""

WEIGHT: Final = {
    "bf16": (
        (16, 128, 32, 3, 1, 4, 4), (32, 128, 32, 3, 1, 4, 3), (32, 256, 32, 3, 1, 8, 2), (48, 128, 32, 3, 1, 4, 3),
        (64, 16, 64, 3, 4, 1, 6), (64, 32, 64, 3, 4, 1, 5), (64, 48, 32, 3, 4, 1, 4), (64, 48, 64, 3, 4, 1, 4),
        (64, 64, 32, 3, 2, 2, 3), (64, 64, 32, 3, 2, 2, 4), (64, 64, 64, 3, 2, 2, 3), (64, 64, 64, 3, 4, 2, 3),
        (64, 128, 64, 3, 2, 4, 2), (64, 144, 32, 3, 4, 1, 3), (64, 192, 32, 3, 2, 4, 2), (96, 128, 32, 3, 2, 4, 2),
        (96, 224, 64, 3, 6, 2, 1), (128, 32, 64, 3, 4, 1, 4), (128, 64, 32, 3, 4, 2, 2), (128, 128, 32, 4, 2, 4, 2),
        (128, 144, 32, 3, 4, 1, 2),
    ),
    "float32": (
        (16, 128, 32, 3, 1, 4, 4), (32, 128, 32, 3, 1, 4, 3), (48, 128, 32, 3, 1, 4, 2), (64, 64, 32, 3, 2, 2, 3),
        (64, 128, 16, 3, 2, 4, 2), (64, 128, 32, 3, 2, 4, 2), (96, 128, 32, 3, 2, 4, 1),
    ),
}  # fmt: skip
"""Of the weight gradient."""

SPLITS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Parts of a weight gradient's pixels, where each has `MINIMUM` or more."""
MINIMUM: Final = 256


def _tiles(
    table: Mapping[str, tuple[tuple[int, ...], ...]], frame: Frame, columns: int, shared_bytes: Callable[[Tile], int]
) -> tuple[Tile, ...]:
    """Those that fit into shared memory and do not compute many columns that nobody needs."""
    kind = "float32" if frame.arithmetic == "tf32" else frame.arithmetic
    found = (Tile(*numbers) for numbers in table.get(kind, ()))
    most = max(WASTE * columns, 16)
    return tuple(t for t in found if -(-columns // t.columns) * t.columns <= most and shared_bytes(t) <= frame.shared)


def _sides(case: Case) -> tuple[Tensor, Tensor]:
    """What the product reads and writes."""
    frame, step, backward = case.frame, case.step, case.direction != FORWARD
    value = step.inputs[0]
    x = frame.flat(value, backward)[0] if step.op == "dense" else frame.image(value, backward)
    out = frame.image(case.steps[-1].output, backward)
    return (out, x) if backward else (x, out)


def product_tiles(case: Case) -> tuple[Tile, ...]:
    """For the implicit product; a fire's halves begin at a tile each."""
    frame, (_, out) = case.frame, _sides(case)
    found = _tiles(PRODUCT, frame, out.padded, lambda tile: implicit_gemm.shared_bytes(tile, frame.element))
    fire = case.direction == FORWARD and len(case.steps) == 2 and is_fire(*case.steps)
    return tuple(t for t in found if case.step.output.shape[-1] % t.columns == 0) if fire else found


def halo_tiles(case: Case) -> tuple[Tile, ...]:
    """For the product with pixels in shared memory, whose filters are packed in blocks of the tile's depth."""
    frame, (x, out) = case.frame, _sides(case)
    second = case.direction != FORWARD
    found = _tiles(HALO, frame, out.padded, lambda tile: halo.shared_bytes(tile, frame.element, x.width, second))
    return tuple(tile for tile in found if tile.depth == channel_bytes(x, out))


def weight_tiles(case: Case) -> tuple[tuple[Tile, int], ...]:
    """For the weight gradient: a tile, and into how many parts the pixels are split."""
    frame, dy = case.frame, case.frame.image(case.step.output, True)
    tiles = _tiles(WEIGHT, frame, 1 << 30, lambda tile: weight_gradient.shared_bytes(tile, frame.element))
    fitting = [t for t in tiles if -(-dy.padded // t.rows) * t.rows <= max(2 * dy.padded, 16)]
    pixels = frame.batch * dy.height * dy.width
    return tuple((t, splits) for t in fitting for splits in SPLITS if splits == 1 or pixels >= MINIMUM * splits)
