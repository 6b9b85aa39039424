"""Max, average and global average pooling, forward and backward.

A tile of a max pool is one window, in backward one input pixel, of up to four vectors of channels: loops over channels
in memory would store and load the running maximum for every tap. NaN wins; a tie goes to the first pixel. Backward
gathers from all windows of an input pixel, so that no two tasks write the same pixel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils

from core.cpu.instruction_set import current_isa
from core.cpu.memory import floats, make_intrinsic, words
from core.cpu.vectors import I32, I64, Vectors, small_function

# Record. X is the input (its gradient in backward), Y the output, each with row and pixel strides in bytes.
# AUX: winners int32 (rows, columns, C) of max, or 1 / window size float32 (rows, columns) of avg; 0 for none.
X, X_ROW, X_PIXEL, HEIGHT, WIDTH, CHANNELS = range(1, 7)
Y, Y_ROW, Y_PIXEL, ROWS, COLUMNS, AUX = range(7, 13)
KERNEL_Y, KERNEL_X, STRIDE_Y, STRIDE_X, TOP, LEFT = range(13, 19)
ACCUMULATE: int = 19
"""Backward adds to the gradient."""
CLOSED: int = 20
"""Forward of max: 1 drops winners not above 0, 2 also those not below 6 (gradient of a fused ReLU or ReLU6)."""

WIDE: Final = 4
"""Vectors of the wider tile; the other is one vector wide, and masked."""
_VECTOR_WIDTH: Final = current_isa().vector_width


def _emit_window(function: ir.Function, vectors: int, winners: bool) -> None:
    b = ir.IRBuilder(function.append_basic_block("entry"))
    winner, x, row, pixel, kh, kw, out, place, line, closed, lanes = function.args
    v = Vectors(b, current_isa())
    mask = v.first(lanes) if vectors == 1 else None
    best = [v.slot(v.constant(float("-inf"))) for _ in range(vectors)]
    first = v.splat(b.trunc(place, I32)) if winners else ir.Constant(v.bits, [0] * v.vector_width)
    kept = [v.slot(first) for _ in best]
    steps = [ir.Constant(I64, 4 * i * v.vector_width) for i in range(vectors)]
    with cgutils.for_range(b, kh) as y, cgutils.for_range(b, kw) as column:
        start = b.add(x, b.add(b.mul(y.index, row), b.mul(column.index, pixel)))
        here = v.splat(b.trunc(b.add(b.add(place, b.mul(y.index, line)), column.index), I32)) if winners else None
        for i, step in enumerate(steps):
            _see(v, v.load(b.add(start, step), mask), best[i], kept[i], here)
    for i, step in enumerate(steps):
        if winners:
            v.store(b.load(best[i]), b.add(out, step), mask)
            v.store(_close(v, b.load(best[i]), b.load(kept[i]), closed), b.add(winner, step), mask)
        else:
            v.store(b.select(b.load(kept[i]), v.constant(float("nan")), b.load(best[i])), b.add(out, step), mask)
    b.ret_void()


def _see(v: Vectors, seen: Any, best: Any, kept: Any, here: Any) -> None:
    """Update the maximum by one pixel: `kept` are the winners' numbers, `here` its own; if None, lanes with a NaN."""
    b, old = v.b, v.b.load(best)
    wins, is_nan = b.fcmp_ordered(">", seen, old), b.fcmp_unordered("uno", seen, seen)
    if here is None:
        b.store(b.or_(b.load(kept), is_nan), kept)
    else:
        wins = b.or_(wins, is_nan)
        b.store(b.select(wins, here, b.load(kept)), kept)
    b.store(b.select(wins, seen, old), best)


def _close(v: Vectors, best: Any, kept: Any, closed: Any) -> Any:
    """Return the winners' numbers, -1 where the mask of the activation is closed."""
    b = v.b
    cap = b.select(b.icmp_signed("==", closed, ir.Constant(I64, 2)), v.constant(6.0), v.constant(float("inf")))
    is_open = b.and_(b.fcmp_ordered(">", best, v.constant(0.0)), b.fcmp_ordered("<", best, cap))
    free = v.splat(b.icmp_signed("==", closed, ir.Constant(I64, 0)))
    return b.select(b.or_(is_open, free), kept, ir.Constant(v.ints, [-1] * v.vector_width))


def _call_tile(b: ir.IRBuilder, arguments: Sequence[Any], name: str, emit: Callable[..., None]) -> None:
    """Call the tile that `emit` writes for the number of vectors in the first argument; the rest are the tile's."""
    wide, *rest = arguments
    with b.if_else(b.icmp_signed("==", wide, ir.Constant(I64, WIDE))) as branches:
        for branch, vectors in zip(branches, (WIDE, 1), strict=True):
            with branch:
                tile = partial(emit, vectors=vectors)
                b.call(small_function(b.module, current_isa(), f"{name}_{vectors}", len(rest), tile), rest)


def _emit_maximum(b: ir.IRBuilder, arguments: Sequence[Any]) -> None:
    with b.if_else(b.icmp_signed("!=", arguments[1], ir.Constant(I64, 0))) as branches:
        for branch, winners in zip(branches, (True, False), strict=True):
            with branch:
                _call_tile(b, arguments, f"maximum_{int(winners)}", partial(_emit_window, winners=winners))


maximum = make_intrinsic(types.void, [types.int64] * 12, _emit_maximum)
"""``maximum(wide, winners, x, row, pixel, kh, kw, out, first, line, closed, lanes)``: the maximum of one window.

wide: vectors, `WIDE` or 1. winners: address of int32 that get the number of each winner in the window, or 0. x, out:
addresses of the first channel of the window's first pixel and of the result. first: number of the first pixel; line:
numbers per row. closed: as `CLOSED`. lanes: valid floats of a single vector.
"""


def _emit_gather_tile(function: ir.Function, vectors: int) -> None:
    b = ir.IRBuilder(function.append_basic_block("entry"))
    dx, adds, dy, row, pixel, winners, winner_row, winner_pixel, rows, columns, place, line, step, lanes = function.args
    v = Vectors(b, current_isa())
    mask = v.first(lanes) if vectors == 1 else None
    offsets = [ir.Constant(I64, 4 * i * v.vector_width) for i in range(vectors)]
    sums = [v.slot(v.constant(0.0)) for _ in offsets]
    with b.if_then(b.icmp_signed("!=", adds, ir.Constant(I64, 0))):
        for offset, total in zip(offsets, sums, strict=True):
            b.store(v.load(b.add(dx, offset), mask), total)
    with cgutils.for_range(b, rows) as y, cgutils.for_range(b, columns) as x:
        here = b.sub(b.sub(place, b.mul(y.index, line)), b.mul(x.index, step))
        number = v.splat(b.trunc(here, I32))
        source = b.add(dy, b.add(b.mul(y.index, row), b.mul(x.index, pixel)))
        winner = b.add(winners, b.add(b.mul(y.index, winner_row), b.mul(x.index, winner_pixel)))
        for offset, total in zip(offsets, sums, strict=True):
            won = b.icmp_signed("==", v.load(b.add(winner, offset), mask, v.ints), number)
            given = b.select(won, v.load(b.add(source, offset), mask), v.constant(0.0))
            b.store(b.fadd(b.load(total), given), total)
    for offset, total in zip(offsets, sums, strict=True):
        v.store(b.load(total), b.add(dx, offset), mask)
    b.ret_void()


gather = make_intrinsic(types.void, [types.int64] * 15, partial(_call_tile, name="gather", emit=_emit_gather_tile))
"""The gradient of one input pixel: the sum of dy over those of its windows that it won.

Arguments: wide as in `maximum`; dx; adds (1 adds to dx); dy, its row and pixel; winners as `maximum` wrote them, their
row and pixel; rows and columns of windows; number of the pixel in the first of them; line, step: how much less it is in
the window below and in the next one; lanes.
"""


def run_max_pool(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are output rows. Ties go to the first pixel in reading order, NaN wins."""
    w = words(record)
    channels = w[CHANNELS]
    for oy in range(low, high):
        top = oy * w[STRIDE_Y] - w[TOP]
        y0, y1 = max(top, 0), min(top + w[KERNEL_Y], w[HEIGHT])
        for ox in range(w[COLUMNS]):
            left = ox * w[STRIDE_X] - w[LEFT]
            x0, x1 = max(left, 0), min(left + w[KERNEL_X], w[WIDTH])
            x = w[X] + y0 * w[X_ROW] + x0 * w[X_PIXEL]
            out = w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL]
            winner = w[AUX] + (oy * w[COLUMNS] + ox) * channels * 4 if w[AUX] else 0
            place = (y0 - top) * w[KERNEL_X] + x0 - left
            c = 0
            while c < channels:
                wide = WIDE if channels - c >= WIDE * _VECTOR_WIDTH else 1
                kept = winner + 4 * c if winner else 0
                maximum(
                    wide, kept, x + 4 * c, w[X_ROW], w[X_PIXEL], y1 - y0, x1 - x0, out + 4 * c,
                    place, w[KERNEL_X], w[CLOSED], channels - c,
                )  # fmt: skip
                c += wide * _VECTOR_WIDTH


def run_max_pool_backward(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are input rows."""
    w = words(record)
    channels = w[CHANNELS]
    places = w[COLUMNS] * channels * 4
    for iy in range(low, high):
        first_y = max(0, (iy + w[TOP] - w[KERNEL_Y] + w[STRIDE_Y]) // w[STRIDE_Y])
        last_y = min(w[ROWS] - 1, (iy + w[TOP]) // w[STRIDE_Y])
        for ix in range(w[WIDTH]):
            dx = w[X] + iy * w[X_ROW] + ix * w[X_PIXEL]
            first_x = max(0, (ix + w[LEFT] - w[KERNEL_X] + w[STRIDE_X]) // w[STRIDE_X])
            last_x = min(w[COLUMNS] - 1, (ix + w[LEFT]) // w[STRIDE_X])
            dy = w[Y] + first_y * w[Y_ROW] + first_x * w[Y_PIXEL]
            winners = w[AUX] + first_y * places + first_x * channels * 4
            place = (iy + w[TOP] - first_y * w[STRIDE_Y]) * w[KERNEL_X] + ix + w[LEFT] - first_x * w[STRIDE_X]
            c = 0
            while c < channels:
                wide = WIDE if channels - c >= WIDE * _VECTOR_WIDTH else 1
                gather(
                    wide, dx + 4 * c, w[ACCUMULATE], dy + 4 * c, w[Y_ROW], w[Y_PIXEL], winners + 4 * c, places,
                    channels * 4, last_y + 1 - first_y, last_x + 1 - first_x, place, w[STRIDE_Y] * w[KERNEL_X],
                    w[STRIDE_X], channels - c,
                )  # fmt: skip
                c += wide * _VECTOR_WIDTH


def run_avg_pool(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are output rows; global pooling is one window over everything."""
    w = words(record)
    channels = w[CHANNELS]
    for oy in range(low, high):
        y0 = oy * w[STRIDE_Y] - w[TOP]
        for ox in range(w[COLUMNS]):
            x0 = ox * w[STRIDE_X] - w[LEFT]
            out = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
            for c in range(channels):
                out[c] = 0
            share = floats(w[AUX] + (oy * w[COLUMNS] + ox) * 4, 1)[0]
            for iy in range(max(y0, 0), min(y0 + w[KERNEL_Y], w[HEIGHT])):
                for ix in range(max(x0, 0), min(x0 + w[KERNEL_X], w[WIDTH])):
                    seen = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
                    for c in range(channels):
                        out[c] += seen[c]
            for c in range(channels):
                out[c] *= share


def run_avg_pool_backward(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are input rows."""
    w = words(record)
    channels = w[CHANNELS]
    for iy in range(low, high):
        first_y = max(0, (iy + w[TOP] - w[KERNEL_Y] + w[STRIDE_Y]) // w[STRIDE_Y])
        last_y = min(w[ROWS] - 1, (iy + w[TOP]) // w[STRIDE_Y])
        for ix in range(w[WIDTH]):
            dx = floats(w[X] + iy * w[X_ROW] + ix * w[X_PIXEL], channels)
            first_x = max(0, (ix + w[LEFT] - w[KERNEL_X] + w[STRIDE_X]) // w[STRIDE_X])
            last_x = min(w[COLUMNS] - 1, (ix + w[LEFT]) // w[STRIDE_X])
            if not w[ACCUMULATE]:
                dx[:] = 0
            for oy in range(first_y, last_y + 1):
                for ox in range(first_x, last_x + 1):
                    share = floats(w[AUX] + (oy * w[COLUMNS] + ox) * 4, 1)[0]
                    dy = floats(w[Y] + oy * w[Y_ROW] + ox * w[Y_PIXEL], channels)
                    for c in range(channels):
                        dx[c] += dy[c] * share
