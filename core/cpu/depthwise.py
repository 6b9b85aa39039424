"""The depthwise convolution: a kernel for rows of 3 x 3 windows, and records that use the depthwise tile for the rest.

The row kernel keeps the nine taps of a vector of channels in registers, because a call of the tile costs more than
72 multiply-adds. It sums in the order of the tile, so the bits are the same. Packed filters and private gradients are
(kh, kw, C).
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils

from core.cpu import convolution as conv
from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.activation import CLIP, activate, clip_of, number_of
from core.cpu.geometry import View, phases
from core.cpu.gradients import GradientTarget, Ledger, fill_unreached
from core.cpu.instruction_set import current_isa
from core.cpu.lowering import Lowering
from core.cpu.memory import words
from core.cpu.records import NULL, Address, Fields, Record
from core.cpu.tiling import Columns, tile_rows
from core.cpu.vectors import I64, Pixels, row_intrinsic
from core.ops.window import read_window
from core.program import Step

# Fields of a record of the row kernel.
X, X_ROW, X_PIXEL, X_STEP, X_DOWN = range(1, 6)
"""The first window; bytes to the next row and pixel, and to the next window to the right and below."""
TAPS, TAP, BIAS, ACTIVATION = range(6, 10)
"""Filter (3, 3, C) and bytes from tap to tap; number of the activation (`core.cpu.activation`)."""
OUT, OUT_ROW, OUT_PIXEL, ROWS, COLUMNS = range(10, 15)
CHANNELS, BLOCKS, BLOCK_CHANNELS, BY_ROW = range(15, 19)
"""Blocks of `BLOCK_CHANNELS` channels; BY_ROW as `core.cpu.tiled.BY_ROW`."""

CHANNELS_PER_TASK: Final = 64
"""Channels of one task of the row kernel: the width of a tile of the convolution before it."""


def _emit_row(p: Pixels) -> None:
    out, out_pixel, x, x_row, x_pixel, x_step, taps, tap, bias, count, channels, clip = p.a
    v, b = p.v, p.b
    bounds = p.clip_bounds(clip)
    places = [[(x_row, ky), (x_pixel, kx)] for ky in range(3) for kx in range(3)]

    def body(channel: Any, mask: Any) -> None:
        k = [v.load(p.at(taps, (channel, 4), (tap, i)), mask) for i in range(9)]
        start = v.slot(v.constant(0.0))
        with b.if_then(b.icmp_signed("!=", bias, ir.Constant(I64, 0))):
            b.store(v.load(p.at(bias, (channel, 4)), mask), start)
        if mask is None and p.isa.assembly and not p.isa.masks:
            origin = p.at(x, (channel, 4)), p.at(out, (channel, 4))
            _emit_whole_vector(p, origin, k, b.load(start), bounds)
            return
        with cgutils.for_range(b, count) as pixel:
            window, value = p.at(x, (channel, 4), (pixel.index, x_step)), b.load(start)
            for factor, place in zip(k, places, strict=True):
                value = v.multiply_add(v.load(p.at(window, *place), mask), factor, value)
            v.store(p.clip(value, bounds), p.at(out, (channel, 4), (pixel.index, out_pixel)), mask)

    p.for_channels(channels, body)


def _emit_whole_vector(p: Pixels, origin: tuple[Any, Any], taps: list[Any], bias: Any, bounds: tuple[Any, Any]) -> None:
    """Emit the row of a whole vector of channels: nine loads within the multiply-adds, from three addresses."""
    _, out_pixel, _, x_row, x_pixel, x_step, *_, count, _, _ = p.a
    v, b = p.v, p.b
    window, out = v.slot(origin[0]), v.slot(origin[1])
    with cgutils.for_range(b, count):
        value, row = bias, b.load(window)
        for first in (0, 3, 6):
            for tap, form in zip(taps[first : first + 3], ("($1)", "($1,$2)", "($1,$2,2)"), strict=True):
                value = v.multiply_add_from(form, row, x_pixel, tap, value)
            row = b.add(row, x_row)
        v.store(p.clip(value, bounds), b.load(out))
        b.store(b.add(b.load(window), x_step), window)
        b.store(b.add(b.load(out), out_pixel), out)


depthwise_row = row_intrinsic("depthwise", 12, _emit_row)
"""``depthwise_row(out, out_pixel, x, x_row, x_pixel, x_step, taps, tap, bias, count, channels, clip)`` computes
``clip(bias + sum of 3 x 3 taps times x)`` for a row; `x_step` and `tap` are bytes to the next window and tap, bias 0 is
no bias."""


def run_depthwise(record: int, context: int, image: int, low: int, high: int) -> None:
    """Tasks are (block, row), rows fastest, or (row, block)."""
    w = words(record)
    rows, blocks, activation = w[ROWS], w[BLOCKS], w[ACTIVATION]
    clip = activation if activation <= CLIP else 0
    for task in range(low, high):
        r, block = (task // blocks, task % blocks) if w[BY_ROW] else (task % rows, task // rows)
        first = block * w[BLOCK_CHANNELS]
        shift, channels = 4 * first, min(w[BLOCK_CHANNELS], w[CHANNELS] - first)
        out = w[OUT] + r * w[OUT_ROW] + shift
        depthwise_row(
            out, w[OUT_PIXEL], w[X] + r * w[X_DOWN] + shift, w[X_ROW], w[X_PIXEL],
            w[X_STEP], w[TAPS] + shift, w[TAP], w[BIAS] + shift if w[BIAS] else 0, w[COLUMNS],
            channels, clip,
        )  # fmt: skip
        if activation > CLIP:
            activate(activation, out, w[OUT_PIXEL], w[COLUMNS], channels)


def write_forward(lowering: Lowering, step: Step) -> list[Record]:
    """List the record of ``y = activation(bias + x * filter)``; x has a zero border as wide as the window reaches."""
    x, y, window = lowering.x(step.inputs[0]), lowering.x(step.output), read_window(step.attributes)
    taps, bias = _pack_filter(lowering, step), lowering.parameter(step, "bias")
    (kh, kw), (sh, sw), (top, left, _, _) = window.kernel, window.stride, window.padding
    # Threads share rows or channels, as the 1 x 1 convolutions before and after are likely to.
    activation, by_row = number_of(step.activation, step.node), int(8 * x.height * x.width >= x.channels)
    fields: Fields
    if window.kernel == (3, 3):
        blocks = -(-x.channels // CHANNELS_PER_TASK)
        fields = {
            X: x.at(-top, -left), X_ROW: x.row, X_PIXEL: x.pixel, X_STEP: sw * x.pixel, X_DOWN: sh * x.row,
            TAPS: taps, TAP: 4 * x.channels, BIAS: bias, ACTIVATION: activation, OUT: y.address, OUT_ROW: y.row,
            OUT_PIXEL: y.pixel, ROWS: y.height, COLUMNS: y.width, CHANNELS: x.channels, BLOCKS: blocks,
            BLOCK_CHANNELS: CHANNELS_PER_TASK, BY_ROW: by_row,
        }  # fmt: skip
        return [Record(run_depthwise, fields, blocks * y.height, step.node, "forward", "tiled")]
    fields = _tile_fields(x.channels, y.width, kh * kw) | {
        tiled.A: x.at(-top, -left), mk.SAM: sw * x.pixel, mk.SAK: x.pixel, mk.SAY: x.row, tiled.SAR: sh * x.row,
        tiled.B: taps, mk.SBK: 4 * x.channels, mk.SBY: kw * 4 * x.channels, mk.KL: kw, tiled.KH: kh, tiled.KH_LAST: kh,
        tiled.C: y.address, mk.LDC: y.pixel, tiled.SCR: y.row, tiled.ROWS: y.height, tiled.BY_ROW: by_row,
        tiled.X: bias, mk.FLAGS: mk.END_FLAGS[clip_of(activation)] | (mk.BIAS if bias != NULL else 0),
        tiled.ACTIVATION: activation,
    }  # fmt: skip
    return [_tile_record(step, fields, y.height, "forward")]


def _pack_filter(lowering: Lowering, step: Step) -> Address:
    """Return the step's filter as (kh, kw, C), packed whenever the weights changed."""
    kh, kw = read_window(step.attributes).kernel
    channels, taps = step.output.shape[2], kh * kw
    panel = lowering.reserve(channels * taps)
    fields: Fields = {
        conv.SOURCE: lowering.parameter(step, "weight"), conv.PANEL: panel, conv.WIDE: channels,
        conv.VALID: channels, conv.BLOCKS: 1, conv.PART: channels * taps * 4, conv.T1: 1, conv.T2: 1,
        conv.DEPTH: taps, conv.S_N: taps * 4, conv.S_K: 4,
    }  # fmt: skip
    lowering.packs.append(Record(conv.run_pack, fields, 1, step.node, "update", "pack"))
    return panel


def _tile_fields(channels: int, rows: int, depth: int) -> Fields:
    """Return the fields of a product by depthwise tiles, in which a block of channels has its own A and B."""
    width = current_isa().vector_width
    blocks = Columns(0, -(-channels // width), 0, channels)
    strides: Fields = {tiled.SAJ: 4 * width, tiled.SBJ: 4 * width}
    return tile_rows(rows, blocks, depth) | strides | {tiled.GROUPS: 1, mk.KW: 1, tiled.T1: 1, tiled.T2: 1}


def _tile_record(step: Step, fields: Fields, rows: int, direction: str) -> Record:
    tasks = -(-step.output.shape[2] // current_isa().vector_width) * rows
    return Record(tiled.run_tiled, fields, tasks, step.node, direction, "tiled")


def write_backward(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    dy, records = lowering.d(step.output), list[Record]()
    if lowering.trains(step, "weight"):
        records.append(_weight_gradient(lowering, step, dy))
    if lowering.trains(step, "bias"):
        records += conv.bias_gradient(lowering, step, dy)
    target = ledger.targets(step)[0]
    return records if target is None else [*records, *target.before, *_input_gradient(lowering, step, dy, target)]


def _input_gradient(lowering: Lowering, step: Step, dy: View, target: GradientTarget) -> list[Record]:
    """List the records of dx, one convolution with the rotated filter for every phase of the stride."""
    window, dx, y, records = read_window(step.attributes), target.dx, target.y, []
    (_, kw), (sh, sw) = window.kernel, window.stride
    taps, pixel = _pack_filter(lowering, step), 4 * dx.channels
    spans = phases((dx.height, dx.width), window.kernel, window.stride, window.padding)
    for sy, sx in (span for span in spans if span[0].taps * span[1].taps):
        last = (sy.tap + sh * (sy.taps - 1)) * kw + sx.tap + sw * (sx.taps - 1)
        fields = _tile_fields(dx.channels, sx.count, sy.taps * sx.taps) | {
            tiled.A: dy.at(sy.lowest, sx.lowest), mk.SAM: dy.pixel, mk.SAK: dy.pixel, mk.SAY: dy.row,
            tiled.SAR: dy.row, tiled.B: taps + last * pixel, mk.SBK: -sw * pixel, mk.SBY: -sh * kw * pixel,
            mk.KL: sx.taps, tiled.KH: sy.taps, tiled.KH_LAST: sy.taps,
            tiled.C: dx.at(sy.first, sx.first), mk.LDC: sw * dx.pixel, tiled.SCR: sh * dx.row,
            tiled.ROWS: sy.count, mk.FLAGS: target.flags,
            tiled.MASK_AT: y.at(sy.first, sx.first), mk.LDM: sw * y.pixel, tiled.SMR: sh * y.row,
        }  # fmt: skip
        records.append(_tile_record(step, fields, sy.count, "backward_input"))
    return [*fill_unreached(lowering, step, target, spans, window.stride), *records]


def _weight_gradient(lowering: Lowering, step: Step, dy: View) -> Record:
    """Return the record that adds the filter's gradient: a tile's rows are the taps of one row of the filter."""
    x, window = lowering.x(step.inputs[0]), read_window(step.attributes)
    (kh, kw), (sh, sw), (top, left, _, _) = window.kernel, window.stride, window.padding
    rows, times, summed = conv.sum_over_pixels(dy)
    pixel = 4 * x.channels
    fields = summed | _tile_fields(x.channels, kw, rows * dy.width) | {
        tiled.A: x.at(-top, -left), mk.SAM: x.pixel, mk.SAK: sw * x.pixel,
        mk.SAY: sh * x.row, tiled.SAR: rows * sh * x.row, tiled.SAT1: x.row, tiled.B: dy.address,
        tiled.C: lowering.private(step, "weight"), mk.LDC: pixel, tiled.T1: kh, tiled.SCT1: kw * pixel,
    }  # fmt: skip
    return _tile_record(step, fields, times, "backward_weight")
