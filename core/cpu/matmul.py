"""Records of the tiled kernel: how a product is cut into tiles, and the three directions of a convolution."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from core.cpu import microkernel as mk
from core.cpu import packing, tiled
from core.cpu.geometry import Border, View, phases
from core.cpu.level import current_level
from core.cpu.records import NOWHERE, Address, Record

CALL_CYCLES: Final = 40.0
"""Cycles a tile costs besides its multiply-adds (prologue, epilogue, call), measured on Zen 5."""

REDUCED_PIXELS: Final = 220
"""Output pixels a weight gradient sums over at a time: 220 x 32 floats are 28 KB, inside the L1 cache."""


@final
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


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """A run of columns done in tiles of one width."""

    vectors: int
    blocks: int
    first: int
    count: int


def split_columns(count: int) -> tuple[Columns, ...]:
    """Columns of a product in the widest tiles first; the last block may be partly empty."""
    lanes = current_level().lanes
    left, first, parts = -(-count // lanes), 0, []
    for vectors in sorted(v for v in current_level().rows if v)[::-1]:
        blocks, left = divmod(left, vectors)
        if blocks:
            size = min(count - first, blocks * vectors * lanes)
            parts.append(Columns(vectors, blocks, first, size))
            first += size
    return tuple(parts)


@functools.cache
def split_rows(count: int, vectors: int, depth: int) -> tuple[tuple[int, int], ...]:
    """Heights of tiles that sum to `count` at the least cost: at most three pairs (height, how many)."""
    heights = sorted(current_level().rows[vectors], reverse=True)
    wide = max(vectors, 1)
    cost = {h: max(h * wide, h + wide, 8) / 2 + CALL_CYCLES / depth for h in heights}
    options = _splits(count, heights, 3)
    return min(options, key=lambda parts: sum(number * cost[h] for h, number in parts))


def _splits(count: int, heights: Sequence[int], parts: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ways to write `count` as at most `parts` heights, falling, each nearly as often as it goes."""
    if count == 0:
        yield ()
    elif parts:
        for i, height in enumerate(heights):
            most = count // height
            for number in range(most, max(most - 4, 0), -1):
                for rest in _splits(count - number * height, heights[i + 1 :], parts - 1):
                    yield ((height, number), *rest)


def cut(m: int, columns: Columns, depth: int) -> dict[int, int | Address]:
    """Fields that say how `m` rows and the columns fall into tiles."""
    fields: dict[int, int | Address] = {
        tiled.VECTORS: columns.vectors,
        tiled.BLOCKS: columns.blocks,
        tiled.COLUMNS: columns.count,
    }
    for part, (height, number) in enumerate(split_rows(m, columns.vectors, min(depth, 4096))):
        fields[tiled.PARTS + 2 * part] = height
        fields[tiled.PARTS + 2 * part + 1] = number
    return fields


def _taps(view: View, kernel: tuple[int, int], depth: int, whole: bool) -> tuple[int, int, int]:
    """(rows of taps, taps in a row, floats of a tap); a row whose taps touch is one long tap."""
    if whole and view.pixel == depth * 4:
        return kernel[0], 1, kernel[1] * depth
    return kernel[0], kernel[1], depth


def panel_floats(columns: int, groups: int, depth: int) -> int:
    """Floats of all panels of a packed filter with `depth` taps times channels."""
    lanes = current_level().lanes
    return groups * sum(c.vectors * c.blocks * lanes for c in split_columns(columns)) * depth


def _product(
    columns: Columns, panel: Address, m: int, counts: tuple[int, int, int], groups: int, rows: int
) -> dict[int, int | Address]:
    """Fields of a product with a packed B: `counts` is (ky, kx, k)."""
    kh, kw, kl = counts
    wide = columns.vectors * current_level().lanes * 4
    return {
        **cut(m, columns, kh * kw * kl),
        mk.KW: kw, mk.KL: kl, tiled.KH: kh, tiled.KH_LAST: kh, mk.SAK: 4,
        tiled.B: panel, mk.SBK: wide, mk.SBX: kl * wide, mk.SBY: kw * kl * wide,
        tiled.SBJ: kh * kw * kl * wide, tiled.SBG: kh * kw * kl * wide * columns.blocks,
        tiled.GROUPS: groups, tiled.ROWS: rows, tiled.T1: 1, tiled.T2: 1,
    }  # fmt: skip


def _panels(panel: Address, columns: int, groups: int, depth: int) -> Iterator[tuple[Columns, Address]]:
    for part in split_columns(columns):
        yield part, panel
        panel = panel + groups * part.vectors * part.blocks * current_level().lanes * 4 * depth


def forward_records(
    c: Convolution, x: View, y: View, panel: Address, bias: Address | None, flags: int, layer: str
) -> list[Record]:
    """``y = end(bias + x * filter)``; x has a zero border as wide as the window reaches."""
    records = []
    counts = _taps(x, c.kernel, c.depth, c.groups == 1)
    start = x.at(-c.padding[0], -c.padding[1])
    for part, at in _panels(panel, c.width, c.groups, c.kernel[0] * c.kernel[1] * c.depth):
        fields = _product(part, at, y.width, counts, c.groups, y.height)
        shift = part.first * 4
        fields |= {
            tiled.A: start, mk.SAM: c.stride[1] * x.pixel, mk.SAX: x.pixel, mk.SAY: x.row,
            tiled.SAR: c.stride[0] * x.row, tiled.SAG: c.depth * 4,
            tiled.C: y.address + shift, mk.LDC: y.pixel, tiled.SCR: y.row, tiled.SCG: c.width * 4,
            tiled.X: bias + shift if bias else NOWHERE, tiled.SXG: c.width * 4,
            mk.FLAGS: flags | (mk.BIAS if bias else 0),
        }  # fmt: skip
        tasks = c.groups * part.blocks * y.height
        records.append(Record(tiled.run_tiled, fields, tasks, layer, "forward", "tiled"))
    return records


def forward_packs(c: Convolution, weight: Address, panel: Address, layer: str) -> list[Record]:
    """Records that pack the filter (OHWI) for `forward_records`."""
    kh, kw = c.kernel
    size = kh * kw * c.depth * 4
    records = []
    for part, at in _panels(panel, c.width, c.groups, kh * kw * c.depth):
        source = weight + part.first * size
        strides = (size, 0, 0, 4, c.width * size)
        records.append(_pack(part, source, at, (1, 1, kh * kw * c.depth), strides, c.groups, layer))
    return records


def _pack(
    part: Columns, source: Address, panel: Address, counts: tuple[int, int, int],
    strides: tuple[int, int, int, int, int], groups: int, layer: str,
) -> Record:  # fmt: skip
    """`strides` of the source in bytes: columns, t1, t2, k, groups."""
    wide = part.vectors * current_level().lanes
    t1, t2, depth = counts
    fields: dict[int, int | Address] = {
        packing.SOURCE: source, packing.PANEL: panel, packing.WIDE: wide, packing.VALID: part.count,
        packing.BLOCKS: part.blocks, packing.PART: t1 * t2 * depth * wide * 4,
        packing.T1: t1, packing.T2: t2, packing.DEPTH: depth,
        packing.S_N: strides[0], packing.S_T1: strides[1], packing.S_T2: strides[2],
        packing.S_K: strides[3], packing.S_GROUP: strides[4],
    }  # fmt: skip
    return Record(packing.run_pack, fields, groups * part.blocks, layer, "update", "pack")


def _covers(c: Convolution, size: tuple[int, int]) -> bool:
    """True if the window is the whole input, as that of a dense layer on an image."""
    return c.kernel == size != (1, 1) and c.groups == 1 and not any(c.padding)


def gradient_panel_floats(c: Convolution, size: tuple[int, int]) -> int:
    """Floats of the panels of all phases of the input gradient for inputs of `size`."""
    if _covers(c, size):
        (kh, kw), rows = c.kernel, c.filters
        return max(panel_floats(kw * c.depth, kh, rows), kh * panel_floats(c.depth, kw, rows))
    return sum(
        panel_floats(c.depth, c.groups, sy.taps * sx.taps * c.width)
        for sy in phases(size[0], c.kernel[0], c.stride[0], c.padding[0])
        for sx in phases(size[1], c.kernel[1], c.stride[1], c.padding[1])
    )


def input_gradient(
    c: Convolution, dy: View, dx: View, y_mask: View | None, flags: int,
    weight: Address, panel: Address, layer: str,
) -> tuple[list[Record], list[Record], list[tuple[int, int, int, int]]]:  # fmt: skip
    """Records of ``dx = dy * turned filter``, records that pack it, and phases (y, x, rows, columns) no tap reaches.

    One convolution for every phase of the stride; dy has a border as `gradient_border` says.
    """
    if _covers(c, (dx.height, dx.width)):
        return *_whole_input_gradient(c, dy, dx, y_mask, flags, weight, panel, layer), []
    records, packs, empty = [], [], []
    (kh, kw), (sh, sw) = c.kernel, c.stride
    tap = c.depth * 4
    for sy in phases(dx.height, kh, sh, c.padding[0]):
        for sx in phases(dx.width, kw, sw, c.padding[1]):
            if not sy.taps * sx.taps:
                empty.append((sy.first, sx.first, sy.count, sx.count))
                continue
            counts = _taps(dy, (sy.taps, sx.taps), c.width, c.groups == 1)
            for part, at in _panels(panel, c.depth, c.groups, sy.taps * sx.taps * c.width):
                fields = _product(part, at, sx.count, counts, c.groups, sy.count)
                shift = part.first * 4
                mask = y_mask.at(sy.first, sx.first) + shift if y_mask else NOWHERE
                fields |= {
                    tiled.A: dy.at(sy.lowest, sx.lowest), mk.SAM: dy.pixel, mk.SAX: dy.pixel, mk.SAY: dy.row,
                    tiled.SAR: dy.row, tiled.SAG: c.width * 4,
                    tiled.C: dx.at(sy.first, sx.first) + shift, mk.LDC: sw * dx.pixel,
                    tiled.SCR: sh * dx.row, tiled.SCG: tap, mk.FLAGS: flags, tiled.MASK_AT: mask,
                }  # fmt: skip
                if y_mask:
                    fields |= {mk.LDM: sw * y_mask.pixel, tiled.SMR: sh * y_mask.row, tiled.SMG: tap}
                tasks = c.groups * part.blocks * sy.count
                records.append(Record(tiled.run_tiled, fields, tasks, layer, "backward_input", "tiled"))
                first_y, first_x = sy.tap + sh * (sy.taps - 1), sx.tap + sw * (sx.taps - 1)
                source = weight + ((first_y * kw + first_x) * tap + shift)
                strides = (4, -sh * kw * tap, -sw * tap, kh * kw * tap, c.width * kh * kw * tap)
                packs.append(_pack(part, source, at, (sy.taps, sx.taps, c.width), strides, c.groups, layer))
            panel = panel + 4 * panel_floats(c.depth, c.groups, sy.taps * sx.taps * c.width)
    return records, packs, empty


def _whole_input_gradient(
    c: Convolution, dy: View, dx: View, y_mask: View | None, flags: int,
    weight: Address, panel: Address, layer: str,
) -> tuple[list[Record], list[Record]]:  # fmt: skip
    """`input_gradient` where each pixel of dx has taps of its own and meets the one pixel of dy: nothing slides.

    As a sliding window it would multiply zeros for all but one of its taps (14x14: 196 times the work). Rows whose
    pixels touch are one run of columns and the rows are groups; else each row's pixels are.
    """
    (kh, kw), records, packs = c.kernel, [], []
    joined = all(view.pixel == c.depth * 4 for view in (dx, y_mask) if view)
    groups, count = (kh, kw * c.depth) if joined else (kw, c.depth)
    for row in range(1 if joined else kh):
        for part, at in _panels(panel, count, groups, c.filters):
            shift = part.first * 4
            fields = _product(part, at, 1, (1, 1, c.filters), groups, 1) | {
                tiled.A: dy.address, tiled.C: dx.at(row, 0) + shift, tiled.SCG: dx.row if joined else dx.pixel,
                mk.FLAGS: flags, tiled.MASK_AT: y_mask.at(row, 0) + shift if y_mask else NOWHERE,
            }  # fmt: skip
            if y_mask:
                fields |= {tiled.SMG: y_mask.row if joined else y_mask.pixel}
            records.append(Record(tiled.run_tiled, fields, groups * part.blocks, layer, "backward_input", "tiled"))
            strides = (4, 0, 0, kh * kw * c.depth * 4, count * 4)
            source = weight + (row * kw * c.depth * 4 + shift)
            packs.append(_pack(part, source, at, (1, 1, c.filters), strides, groups, layer))
        panel = panel + 4 * panel_floats(count, groups, c.filters)
    return records, packs


def weight_gradient(c: Convolution, x: View, dy: View, private: Address, layer: str) -> list[Record]:
    """Records that add the filter's gradient to `private`, floats (group, kh, kw, depth, width)."""
    (kh, kw), (sh, sw) = c.kernel, c.stride
    merged = c.groups == 1 and x.pixel == c.depth * 4
    m, t2 = (kw * c.depth, 1) if merged else (c.depth, kw)
    at_once = min(dy.height, max(1, REDUCED_PIXELS // dy.width))
    blocks = -(-dy.height // at_once)
    records = []
    for part in split_columns(c.width):
        shift = part.first * 4
        fields = {
            **cut(m, part, at_once * dy.width), mk.FLAGS: mk.ACCUMULATE,
            tiled.A: x.at(-c.padding[0], -c.padding[1]), mk.SAM: 4, mk.SAK: sw * x.pixel, mk.SAY: sh * x.row,
            tiled.SAR: at_once * sh * x.row, tiled.SAG: c.depth * 4, tiled.SAT1: x.row, tiled.SAT2: x.pixel,
            tiled.B: dy.address + shift, mk.SBK: dy.pixel, mk.SBY: dy.row, tiled.SBR: at_once * dy.row,
            tiled.SBJ: part.vectors * current_level().lanes * 4, tiled.SBG: c.width * 4,
            tiled.C: private + shift, mk.LDC: c.width * 4, tiled.SCT1: kw * c.depth * c.width * 4,
            tiled.SCT2: c.depth * c.width * 4, tiled.SCG: kh * kw * c.depth * c.width * 4,
            mk.KW: 1, mk.KL: dy.width, tiled.KH: at_once, tiled.KH_LAST: dy.height - (blocks - 1) * at_once,
            tiled.GROUPS: c.groups, tiled.ROWS: blocks, tiled.T1: kh, tiled.T2: t2,
        }  # fmt: skip
        tasks = c.groups * part.blocks * blocks
        records.append(Record(tiled.run_tiled, fields, tasks, layer, "backward_weight", "tiled"))
    return records


def bias_gradient(dy: View, one: Address, private: Address, layer: str) -> list[Record]:
    """Records that add the sum of dy over its pixels to `private`: a product with a row of ones."""
    at_once = min(dy.height, max(1, REDUCED_PIXELS // dy.width))
    blocks = -(-dy.height // at_once)
    records = []
    for part in split_columns(dy.channels):
        shift = part.first * 4
        fields = {
            **cut(1, part, at_once * dy.width), mk.FLAGS: mk.ACCUMULATE, tiled.A: one,
            tiled.B: dy.address + shift, mk.SBK: dy.pixel, mk.SBY: dy.row, tiled.SBR: at_once * dy.row,
            tiled.SBJ: part.vectors * current_level().lanes * 4, tiled.C: private + shift,
            mk.KW: 1, mk.KL: dy.width, tiled.KH: at_once, tiled.KH_LAST: dy.height - (blocks - 1) * at_once,
            tiled.GROUPS: 1, tiled.ROWS: blocks, tiled.T1: 1, tiled.T2: 1,
        }  # fmt: skip
        records.append(Record(tiled.run_tiled, fields, part.blocks * blocks, layer, "backward_weight", "tiled"))
    return records
