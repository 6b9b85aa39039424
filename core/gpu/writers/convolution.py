"""A convolution's launches on the tensor cores: tiles, grids, kernel arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from core.gpu.compilation.compiler import Recipe
from core.gpu.kernels.convolution import conv_halo as neighbours
from core.gpu.kernels.convolution import conv_photo as photo
from core.gpu.kernels.convolution import conv_tensor_core as product
from core.gpu.kernels.convolution import conv_weight_gradient as gradient
from core.gpu.kernels.parts.fragments import ELEMENT, fast_divisor
from core.gpu.kernels.parts.tile import Tile
from core.gpu.launch import RELU, Launch, Tensor, blocks_of
from core.gpu.ops.conv.packing import Taps, padded_depth
from core.gpu.writers import tiles
from core.ops.window import Window

PHOTO_BLOCK: Final = {2: (6, 2, (3, 2, 1)), 4: (8, 1, (4, 2, 1))}
"""A photo convolution's block by bytes of an element: warps, blocks a multiprocessor (as many as registers allow), and
output rows, the most that fit: 3 rows of 112 pixels are 11 pairs of fragments for 6 warps."""

STATISTICS: Final = 5
"""Place of the statistics' address among the arguments of the implicit product."""


@final
@dataclass(frozen=True, slots=True)
class Half:
    """The 1x1 convolution that shares a launch with a 3x3 one: packed filters, bias, filters, row length."""

    weight: int
    bias: int
    filters: int
    depth: int


def forward(
    layer: str,
    arithmetic: str,
    batch: int,
    x: Tensor,
    out: Tensor,
    window: Window,
    taps: Taps,
    weight: int,
    bias: int,
    activation: str,
    half: Half | None = None,
    statistics: int = 0,
    photos: int = 0,
    tile: Tile | None = None,
) -> Launch:
    """The launch of ``out = activation(conv(x) + bias)``; with `half`, out's first channels are the 1x1's."""
    element = ELEMENT[arithmetic]
    rows, columns = batch * out.height * out.width, out.padded
    point = window.kernel == (1, 1) and window.padding == (0, 0, 0, 0)
    kind = "point" if point else "window"
    tile = tile or tiles.forward(arithmetic, rows, columns, taps.total, half.filters if half else 0)
    scalars = _sums(
        rows, columns, padded_depth(taps.total, element), taps.total, out, x, window.stride, window.padding[:2],
        taps.channels, taps.kernel, 0, out.pitch, 0, RELU[activation], 0, 0,
    )
    first = (half.weight, half.bias, half.filters, half.depth) if half else (0, 0, 0, 0)
    addresses = (x.address, weight, bias, out.address, 0, statistics, photos, *first)
    launch = _launch(layer, "forward", arithmetic, tile, kind, bool(statistics), rows, columns, (*addresses, *scalars))
    moved = element * (batch * x.height * x.width * x.padded + rows * columns)
    ones = half.filters if half else 0
    return replace(launch, flops=2 * rows * ((columns - ones) * taps.total + ones * taps.channels), bytes=moved)


def forward_photo(
    layer: str, arithmetic: str, batch: int, x: Tensor, out: Tensor, window: Window, taps: Taps, weight: int, bias: int,
    activation: str, processors: int, limit: int,
) -> Launch | None:  # fmt: skip
    """The launch of a photo's convolution with all filters in shared memory; None where it does not fit."""
    element, columns, (kh, _), steps = ELEMENT[arithmetic], out.padded, taps.kernel, taps.channels * x.element // 32
    if columns % 32 or columns > 128 or window.padding[:2] != (0, 0) or out.channels != columns:
        return None
    (warps, blocks, choices), right = PHOTO_BLOCK[element], window.stride[1] * x.pitch * element
    across = blocks_of(out.width, 16)
    down, row_bytes = window.stride[0] * x.row_pitch * element, x.row_pitch * element
    if right % 16 or row_bytes % 16:
        return None
    for rows in choices:
        group_bytes = (rows - 1) * down + kh * row_bytes
        span = photo.group_span(rows, across, kh, steps, down, right, row_bytes)
        shared = photo.shared_bytes(columns, kh, steps, span)
        if shared <= limit:
            break
    else:
        return None
    groups = blocks_of(out.height, rows)
    values = (
        x.address, weight, bias, out.address, batch * groups, groups, *fast_divisor(groups), rows,
        out.height, out.width,
        across, row_bytes, group_bytes, span, down, right,
        padded_depth(taps.total, element) * element, x.photo_pitch * element, out.pitch, RELU[activation],
    )  # fmt: skip
    kinds = tuple(str(a) for a in photo.ARGUMENTS)
    shape = (arithmetic, columns, kh, steps, warps)
    recipe = Recipe("convolution.conv_photo", "make_photo_convolution", shape, kinds, 32 * warps, blocks)
    total = batch * out.height * out.width
    return Launch(
        layer, "forward", "tensor_core", recipe, (min(batch * groups, blocks * processors), 1, 1), (32 * warps, 1, 1),
        shared, values, flops=2 * total * columns * taps.total,
        bytes=element * (batch * x.photo_pitch + total * columns),
    )  # fmt: skip


def channel_bytes(channels: int, element: int, columns: int) -> int:
    """Bytes of a halo kernel's channel block; 0 where the channels do not divide or the filters are too few."""
    for size in (64, 32):
        if channels * element % size == 0 and columns >= 16:
            return size
    return 0


def suits_halo(window: Window) -> bool:
    """Whether the halo kernel computes this window."""
    return window == Window((3, 3), (1, 1), (1, 1, 1, 1))


def halo(
    layer: str, direction: str, arithmetic: str, batch: int, x: Tensor, out: Tensor, weight: int, bias: int,
    activation: str, mask: Tensor | None, masking: str, accumulate: bool, second: int, size: int,
    tile: Tile | None = None,
) -> Launch:  # fmt: skip
    """The launch of a 3x3 convolution, forward or as an input gradient, with blocks of `size` channel bytes.

    `second` filters of a fire's 1x1 convolution lie in the channels just before x's.
    """
    element, columns = ELEMENT[arithmetic], out.padded
    limit, blocks = batch * (x.height + 1) * (x.width + 1), x.padded * element // size
    tile = tile or tiles.halo(arithmetic, direction, limit, columns, x.padded, size)
    depth = blocks * (10 if second else 9) * size // element
    values = (
        x.address, weight, bias, out.address, mask.address if mask else 0, limit, columns, depth,
        *fast_divisor((x.height + 1) * (x.width + 1)), *fast_divisor(x.width + 1), x.height, x.width, x.pitch, blocks,
        -second, out.pitch, mask.pitch if mask else 0, RELU[activation], RELU[masking] if mask else 0, int(accumulate),
    )  # fmt: skip
    kinds = tuple(str(a) for a in neighbours.ARGUMENTS)
    recipe = Recipe(
        "convolution.conv_halo", "make_halo_convolution", (arithmetic, tile.numbers, bool(second)), kinds, tile.threads,
        tile.blocks,
    )  # fmt: skip
    grid = (blocks_of(limit, tile.rows), blocks_of(columns, tile.columns), 1)
    rows = batch * x.height * x.width
    return Launch(
        layer, direction, "tensor_core", recipe, grid, (tile.threads, 1, 1),
        neighbours.shared_bytes(tile, element, x.width, bool(second)), values,
        flops=2 * rows * columns * (9 * x.padded + second),
        bytes=element * rows * (x.padded + second + columns * (1 + int(accumulate) + (mask is not None))),
    )  # fmt: skip


def backward_input(
    layer: str,
    arithmetic: str,
    batch: int,
    dy: Tensor,
    dx: Tensor,
    window: Window,
    weight: int,
    mask: Tensor | None,
    mask_activation: str,
    accumulate: bool = False,
    second: int = 0,
    tile: Tile | None = None,
) -> Launch:
    """The launch of dx from dy, masked by the output of dx's producer.

    `second` filters of a 1x1 convolution lie in the channels just before dy's (a fire's expand).
    """
    element = ELEMENT[arithmetic]
    (kh, kw), (sy, sx), (top, left, _, _) = window.kernel, window.stride, window.padding
    rows, columns = batch * dx.height * dx.width, dx.padded
    total = kh * kw * dy.padded + second
    kind = "spread" if (sy, sx) != (1, 1) else "point" if (kh, kw) == (1, 1) and not second else "window"
    tile = tile or tiles.backward_input(arithmetic, rows, columns, total)
    source = dy
    if kind == "spread":
        height, width = sy << 16 | dy.height, sx << 16 | dy.width
        source = replace(dy, row=dy.row_pitch, photo=dy.photo_pitch, height=height, width=width)
    scalars = _sums(
        rows, columns, padded_depth(total, element), total, dx, source, (1, 1), (kh - 1 - top, kw - 1 - left),
        dy.padded, (kh, kw), -second, dx.pitch, mask.pitch if mask else 0, 0,
        RELU[mask_activation] if mask else 0, int(accumulate),
    )
    addresses = (dy.address, weight, 0, dx.address, mask.address if mask else 0, 0, 0, 0, 0, 0, 0)
    launch = _launch(
        layer, "backward_input", arithmetic, tile, kind, False, rows, columns, (*addresses, *scalars)
    )
    read = batch * dy.height * dy.width * (dy.padded + second) + rows * columns * (int(accumulate) + (mask is not None))
    return replace(launch, flops=2 * rows * columns * total, bytes=element * (read + rows * columns))


def _sums(
    rows: int, columns: int, depth: int, total: int, out: Tensor, x: Tensor, stride: tuple[int, int],
    padding: Sequence[int], channels: int, kernel: tuple[int, int], segment: int, ldc: int, ldm: int,
    activation: int, masking: int, accumulate: int,
) -> tuple[int, ...]:
    """The kernel's integers from `rows` on, in the order of its signature."""
    return (
        rows, columns, depth, total, *fast_divisor(out.height * out.width), *fast_divisor(out.width),
        out.height * out.width, out.width, x.height, x.width, x.pitch, x.row_pitch, x.photo_pitch, *stride, *padding,
        channels, channels, *kernel, segment, ldc, ldm, activation, masking, accumulate,
    )


def _launch(
    layer: str, direction: str, arithmetic: str, tile: Tile, kind: str, statistics: bool, rows: int,
    columns: int, values: tuple[int, ...],
) -> Launch:
    kinds = tuple(str(a) for a in product.ARGUMENTS)
    recipe = Recipe(
        "convolution.conv_tensor_core", "make_convolution", (arithmetic, tile.numbers, kind, statistics), kinds,
        tile.threads, tile.blocks,
    )  # fmt: skip
    grid = (blocks_of(rows, tile.rows), blocks_of(columns, tile.columns), 1)
    shared = product.shared_bytes(tile, ELEMENT[arithmetic])
    return Launch(layer, direction, "tensor_core", recipe, grid, (tile.threads, 1, 1), shared, values)


def backward_weight(
    layer: str, arithmetic: str, batch: int, x: Tensor, dy: Tensor, window: Window, taps: Taps, partial: int,
    processors: int, tile: Tile | None = None, splits: int = 0,
) -> tuple[Launch, int]:  # fmt: skip
    """The launch of the partial weight gradients, and how many partial results it writes."""
    element = ELEMENT[arithmetic]
    pixels = batch * dy.height * dy.width
    chosen = tiles.backward_weight(arithmetic, pixels, dy.padded, taps.total, processors)
    tile, splits = tile or chosen[0], splits or chosen[1]
    split = blocks_of(blocks_of(pixels, splits), tile.depth) * tile.depth
    splits = blocks_of(pixels, split)
    border = window.padding != (0, 0, 0, 0)
    values = (
        x.address, dy.address, partial, pixels, split, dy.padded, dy.padded, taps.total,
        *fast_divisor(dy.height * dy.width), *fast_divisor(dy.width), dy.height * dy.width, dy.width,
        x.height, x.width, x.pitch, x.row_pitch, x.photo_pitch, *window.stride, *window.padding[:2],
        taps.channels, taps.kernel[1], taps.total, dy.pitch, partial_size(dy.padded, taps),
    )
    kinds = tuple(str(a) for a in gradient.ARGUMENTS)
    recipe = Recipe(
        "convolution.conv_weight_gradient", "make_weight_gradient", (arithmetic, tile.numbers, border), kinds,
        tile.threads, tile.blocks,
    )  # fmt: skip
    grid = (blocks_of(dy.padded, tile.rows), blocks_of(taps.total, tile.columns), splits)
    launch = Launch(
        layer, "backward_weight", "tensor_core", recipe, grid, (tile.threads, 1, 1),
        gradient.shared_bytes(tile, element), values,
        flops=2 * pixels * dy.padded * taps.total,
        bytes=element * (pixels * dy.padded + batch * x.height * x.width * x.padded)
        + 4 * splits * partial_size(dy.padded, taps),
    )
    return launch, splits


def partial_size(filters: int, taps: Taps) -> int:
    """Floats of one partial weight and bias gradient."""
    return filters * taps.total + filters


def reduction(
    layer: str, partial: int, places: int, weight: int, bias: int, splits: int, size: int, weights: int, count: int,
    accumulate: bool,
) -> Launch:
    """The launch that adds the partial results into the gradient buffer."""
    kinds = tuple(str(a) for a in gradient.REDUCTION_ARGUMENTS)
    recipe = Recipe("convolution.conv_weight_gradient", "reduction", (), kinds, 256)
    values = (partial, places, weight, bias, splits, size, weights, count, int(accumulate))
    grid = (blocks_of(count, 32), 1, 1)
    moved = 4 * (splits + 2) * count
    return Launch(layer, "backward_weight", "reduction", recipe, grid, (32, 8, 1), 0, values, bytes=moved, lane=1)
