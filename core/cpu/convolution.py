"""Records of convolutions, forward and backward, and the kernel that packs their filters.

A dense layer is a convolution whose window is the whole input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.activation import clip_of, number_of
from core.cpu.geometry import Border, View, phases, window_of
from core.cpu.gradients import GradientTarget, fill_unreached
from core.cpu.instruction_set import current_isa
from core.cpu.lowering import Lowering
from core.cpu.memory import floats, words
from core.cpu.records import NULL, Address, Fields, Record
from core.cpu.tiling import Columns, packed_product, split_columns, tile_rows
from core.program import Step

REDUCED_PIXELS: Final = 220
"""Output pixels a weight gradient sums over at a time: 220 x 32 floats are 28 KB, inside the L1 cache."""

PACKED_DEPTH: int = 64
"""Rows of a panel in one task of `run_pack`: 64 x 64 floats are 16 KB, inside the L1 cache."""

# Record of `run_pack`. A panel is (T1, T2, K, WIDE) floats. S_N to S_GROUP: strides of the source in bytes.
SOURCE, PANEL, WIDE, VALID, BLOCKS, PART = range(1, 7)
"""VALID: columns of a group in all blocks; PART: bytes of one panel."""
T1, T2, DEPTH, S_N, S_T1, S_T2, S_K, S_GROUP = range(7, 15)


def run_pack(record: int, context: int, image: int, low: int, high: int) -> None:
    """Pack a filter into panels for the register tile; columns past VALID are zero.

    Tasks are (group, block, `PACKED_DEPTH` of the depth).
    """
    w = words(record)
    wide, depth = w[WIDE], w[DEPTH]
    slices = (depth + PACKED_DEPTH - 1) // PACKED_DEPTH
    for task in range(low, high):
        part, first = task // slices, task % slices * PACKED_DEPTH
        last = min(first + PACKED_DEPTH, depth)
        block, group = part % w[BLOCKS], part // w[BLOCKS]
        panel = floats(w[PANEL] + part * w[PART], w[PART] // 4)
        valid = min(wide, w[VALID] - block * wide)
        base = w[SOURCE] + group * w[S_GROUP] + block * wide * w[S_N]
        for t1 in range(w[T1]):
            for t2 in range(w[T2]):
                start = (t1 * w[T2] + t2) * depth * wide
                for n in range(wide):
                    at = base + n * w[S_N] + t1 * w[S_T1] + t2 * w[S_T2]
                    if n < valid:
                        for k in range(first, last):
                            panel[start + k * wide + n] = floats(at + k * w[S_K], 1)[0]
                    else:
                        for k in range(first, last):
                            panel[start + k * wide + n] = 0


@dataclass(frozen=True, slots=True)
class Convolution:
    """Numbers of a convolution; a dense layer is one window over its whole input."""

    filters: int
    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: Border
    groups: int

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return self.channels // self.groups

    @property
    def width(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups


def convolution_of(lowering: Lowering, step: Step) -> Convolution:
    source = lowering.buffers.image(step.inputs[0])
    kernel, stride, padding = window_of(step, source)
    groups = int(step.attributes.get("groups", 1))  # type: ignore[arg-type]
    return Convolution(step.output.shape[-1], source[2], kernel, stride, padding, groups)


def forward_records(lowering: Lowering, step: Step, c: Convolution, x: View, y: View) -> list[Record]:
    """List the records of ``y = activation(bias + x * filter)``; x has a zero border as wide as the window reaches."""
    (kh, kw), records = c.kernel, []
    counts = _count_taps(x, c.kernel, c.depth, c.groups == 1)
    start = x.at(-c.padding[0], -c.padding[1])
    weight, bias = lowering.parameter(step, "weight"), lowering.parameter(step, "bias")
    activation, size = number_of(step.activation, step.node), kh * kw * c.depth * 4
    # Threads share the rows of the image, and each reads the whole filter, or they share the columns of the product.
    by_row = c.filters * size <= 4 * (x.height * x.width * c.channels + y.height * y.width * c.filters)
    for part in split_columns(c.width, y.width, size // 4):
        shift, strides = part.first * 4, (size, 0, 0, 4, c.width * size)
        panel = _pack(lowering, step, part, weight + part.first * size, (1, 1, size // 4), strides, c.groups)
        fields = packed_product(part, panel, y.width, counts, c.groups, y.height) | {
            tiled.A: start, mk.SAM: c.stride[1] * x.pixel, mk.SAX: x.pixel, mk.SAY: x.row,
            tiled.SAR: c.stride[0] * x.row, tiled.SAG: c.depth * 4,
            tiled.C: y.address + shift, mk.LDC: y.pixel, tiled.SCR: y.row, tiled.SCG: c.width * 4,
            tiled.X: bias + shift, tiled.SXG: c.width * 4,
            mk.FLAGS: mk.END_FLAGS[clip_of(activation)] | (mk.BIAS if bias != NULL else 0),
            tiled.ACTIVATION: activation, tiled.BY_ROW: int(by_row),
        }  # fmt: skip
        tasks = c.groups * part.blocks * y.height
        records.append(Record(tiled.run_tiled, fields, tasks, step.node, "forward", "tiled"))
    return records


def _count_taps(view: View, kernel: tuple[int, int], depth: int, whole: bool) -> tuple[int, int, int]:
    """Return (rows of taps, taps in a row, floats of a tap); a row of contiguous taps counts as one long tap."""
    if whole and view.pixel == depth * 4:
        return kernel[0], 1, kernel[1] * depth
    return kernel[0], kernel[1], depth


def _pack(
    lowering: Lowering, step: Step, part: Columns, source: Address, counts: tuple[int, int, int],
    strides: tuple[int, int, int, int, int], groups: int,
) -> Address:  # fmt: skip
    """Reserve a panel for columns of a filter and list the record that packs it whenever weights changed.

    `strides` of the source in bytes: columns, t1, t2, k, groups.
    """
    wide, (t1, t2, depth) = part.vectors * current_isa().vector_width, counts
    panel = lowering.reserve(groups * part.blocks * wide * t1 * t2 * depth)
    fields: Fields = {
        SOURCE: source, PANEL: panel, WIDE: wide, VALID: part.count,
        BLOCKS: part.blocks, PART: t1 * t2 * depth * wide * 4,
        T1: t1, T2: t2, DEPTH: depth,
        S_N: strides[0], S_T1: strides[1], S_T2: strides[2],
        S_K: strides[3], S_GROUP: strides[4],
    }  # fmt: skip
    tasks = groups * part.blocks * -(-depth // PACKED_DEPTH)
    lowering.packs.append(Record(run_pack, fields, tasks, step.node, "update", "pack"))
    return panel


def sum_over_pixels(dy: View) -> tuple[int, int, Fields]:
    """Return (rows of dy at a time, how often, fields) of a sum over the pixels of dy that adds to its output."""
    rows = min(dy.height, max(1, REDUCED_PIXELS // dy.width))
    times = -(-dy.height // rows)
    return rows, times, {
        mk.FLAGS: mk.ACCUMULATE, mk.SBK: dy.pixel, mk.SBY: dy.row, tiled.SBR: rows * dy.row,
        mk.KW: 1, mk.KL: dy.width, tiled.KH: rows, tiled.KH_LAST: dy.height - (times - 1) * rows,
        tiled.ROWS: times,
    }  # fmt: skip


def weight_gradient(lowering: Lowering, step: Step, c: Convolution, x: View, dy: View) -> list[Record]:
    """List the records that add the filter's gradient to the thread's, floats (group, kh, kw, depth, width)."""
    (kh, kw), (sh, sw) = c.kernel, c.stride
    merged = c.groups == 1 and x.pixel == c.depth * 4
    m, t2 = (kw * c.depth, 1) if merged else (c.depth, kw)
    rows, times, summed = sum_over_pixels(dy)
    private, records = lowering.private(step, "weight"), []
    for part in split_columns(c.width):
        shift = part.first * 4
        fields = {
            **summed, **tile_rows(m, part, rows * dy.width),
            tiled.A: x.at(-c.padding[0], -c.padding[1]), mk.SAM: 4, mk.SAK: sw * x.pixel, mk.SAY: sh * x.row,
            tiled.SAR: rows * sh * x.row, tiled.SAG: c.depth * 4, tiled.SAT1: x.row, tiled.SAT2: x.pixel,
            tiled.B: dy.address + shift, tiled.SBG: c.width * 4, tiled.SBJ: part.block_bytes,
            tiled.C: private + shift, mk.LDC: c.width * 4, tiled.SCT1: kw * c.depth * c.width * 4,
            tiled.SCT2: c.depth * c.width * 4, tiled.SCG: kh * kw * c.depth * c.width * 4,
            tiled.GROUPS: c.groups, tiled.T1: kh, tiled.T2: t2,
        }  # fmt: skip
        tasks = c.groups * part.blocks * times
        records.append(Record(tiled.run_tiled, fields, tasks, step.node, "backward_weight", "tiled"))
    return records


def bias_gradient(lowering: Lowering, step: Step, dy: View) -> list[Record]:
    """List the records that add the sum of dy over its pixels to the thread's: a product with a row of ones."""
    rows, times, summed = sum_over_pixels(dy)
    one, private, records = lowering.constant([1.0]), lowering.private(step, "bias"), []
    for part in split_columns(dy.channels):
        shift = part.first * 4
        fields = {
            **summed, **tile_rows(1, part, rows * dy.width), tiled.A: one, tiled.B: dy.address + shift,
            tiled.SBJ: part.block_bytes, tiled.C: private + shift, tiled.GROUPS: 1, tiled.T1: 1, tiled.T2: 1,
        }  # fmt: skip
        records.append(Record(tiled.run_tiled, fields, part.blocks * times, step.node, "backward_weight", "tiled"))
    return records


def input_gradient(lowering: Lowering, step: Step, c: Convolution, dy: View, target: GradientTarget) -> list[Record]:
    """List the records of ``dx = dy * rotated filter``: one plain convolution for every phase of the stride.

    dy has a border as `core.cpu.geometry.gradient_border` says.
    """
    dx, y = target.dx, target.y
    if c.kernel == (dx.height, dx.width) != (1, 1) and c.groups == 1 and not any(c.padding):
        return [*target.before, *_whole_input_gradient(lowering, step, c, dy, target)]
    records, (kh, kw), (sh, sw) = list[Record](), c.kernel, c.stride
    weight, tap = lowering.parameter(step, "weight"), c.depth * 4
    spans = phases((dx.height, dx.width), c.kernel, c.stride, c.padding)
    for sy, sx in (span for span in spans if span[0].taps * span[1].taps):
        counts = _count_taps(dy, (sy.taps, sx.taps), c.width, c.groups == 1)
        last = (sy.tap + sh * (sy.taps - 1)) * kw + sx.tap + sw * (sx.taps - 1)
        for part in split_columns(c.depth):
            shift, strides = part.first * 4, (4, -sh * kw * tap, -sw * tap, kh * kw * tap, c.width * kh * kw * tap)
            source, taps = weight + (last * tap + shift), (sy.taps, sx.taps, c.width)
            panel = _pack(lowering, step, part, source, taps, strides, c.groups)
            fields = packed_product(part, panel, sx.count, counts, c.groups, sy.count) | {
                tiled.A: dy.at(sy.lowest, sx.lowest), mk.SAM: dy.pixel, mk.SAX: dy.pixel, mk.SAY: dy.row,
                tiled.SAR: dy.row, tiled.SAG: c.width * 4,
                tiled.C: dx.at(sy.first, sx.first) + shift, mk.LDC: sw * dx.pixel,
                tiled.SCR: sh * dx.row, tiled.SCG: tap, mk.FLAGS: target.flags,
                tiled.MASK_AT: y.at(sy.first, sx.first) + shift, mk.LDM: sw * y.pixel, tiled.SMR: sh * y.row,
                tiled.SMG: tap,
            }  # fmt: skip
            tasks = c.groups * part.blocks * sy.count
            records.append(Record(tiled.run_tiled, fields, tasks, step.node, "backward_input", "tiled"))
    return [*target.before, *fill_unreached(lowering, step, target, spans, c.stride), *records]


def _whole_input_gradient(
    lowering: Lowering, step: Step, c: Convolution, dy: View, target: GradientTarget
) -> list[Record]:
    """List `input_gradient` where the window is the whole input: each pixel of dx has its own taps.

    As a sliding window it would multiply zeros for all but one of its taps (14x14: 196 times the work). Rows of
    contiguous pixels are one run of columns, with the rows as groups; otherwise the pixels of a row are the groups.
    """
    (kh, kw), records, dx, y = c.kernel, [], target.dx, target.y
    joined, weight = dx.pixel == y.pixel == c.depth * 4, lowering.parameter(step, "weight")
    groups, count = (kh, kw * c.depth) if joined else (kw, c.depth)
    for row in range(1 if joined else kh):
        for part in split_columns(count):
            shift, strides = part.first * 4, (4, 0, 0, kh * kw * c.depth * 4, count * 4)
            source = weight + (row * kw * c.depth * 4 + shift)
            panel = _pack(lowering, step, part, source, (1, 1, c.filters), strides, groups)
            fields = packed_product(part, panel, 1, (1, 1, c.filters), groups, 1) | {
                tiled.A: dy.address, tiled.C: dx.at(row, 0) + shift, tiled.SCG: dx.row if joined else dx.pixel,
                mk.FLAGS: target.flags, tiled.MASK_AT: y.at(row, 0) + shift,
                tiled.SMG: y.row if joined else y.pixel,
            }  # fmt: skip
            records.append(Record(tiled.run_tiled, fields, groups * part.blocks, step.node, "backward_input", "tiled"))
    return records
