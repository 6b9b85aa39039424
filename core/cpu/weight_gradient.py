"""Records of a convolution's weight and bias gradients: products that are summed over pixels."""

from __future__ import annotations

from typing import Final

from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.convolution import Convolution
from core.cpu.cutting import cut, split_columns
from core.cpu.geometry import View
from core.cpu.instruction_set import current_isa
from core.cpu.records import Address, Record

REDUCED_PIXELS: Final = 220
"""Output pixels a weight gradient sums over at a time: 220 x 32 floats are 28 KB, inside the L1 cache."""


def over_pixels(dy: View) -> tuple[int, int, dict[int, int | Address]]:
    """(rows of dy at a time, how often, fields) of a sum over the pixels of dy that is added to what is there."""
    at_once = min(dy.height, max(1, REDUCED_PIXELS // dy.width))
    times = -(-dy.height // at_once)
    return at_once, times, {
        mk.FLAGS: mk.ACCUMULATE, mk.SBK: dy.pixel, mk.SBY: dy.row, tiled.SBR: at_once * dy.row,
        mk.KW: 1, mk.KL: dy.width, tiled.KH: at_once, tiled.KH_LAST: dy.height - (times - 1) * at_once,
        tiled.ROWS: times,
    }  # fmt: skip


def weight_gradient(c: Convolution, x: View, dy: View, private: Address, layer: str) -> list[Record]:
    """Records that add the filter's gradient to `private`, floats (group, kh, kw, depth, width)."""
    (kh, kw), (sh, sw) = c.kernel, c.stride
    merged = c.groups == 1 and x.pixel == c.depth * 4
    m, t2 = (kw * c.depth, 1) if merged else (c.depth, kw)
    at_once, times, summed = over_pixels(dy)
    records = []
    for part in split_columns(c.width):
        shift = part.first * 4
        fields = {
            **summed, **cut(m, part, at_once * dy.width),
            tiled.A: x.at(-c.padding[0], -c.padding[1]), mk.SAM: 4, mk.SAK: sw * x.pixel, mk.SAY: sh * x.row,
            tiled.SAR: at_once * sh * x.row, tiled.SAG: c.depth * 4, tiled.SAT1: x.row, tiled.SAT2: x.pixel,
            tiled.B: dy.address + shift, tiled.SBG: c.width * 4,
            tiled.SBJ: part.vectors * current_isa().vector_width * 4,
            tiled.C: private + shift, mk.LDC: c.width * 4, tiled.SCT1: kw * c.depth * c.width * 4,
            tiled.SCT2: c.depth * c.width * 4, tiled.SCG: kh * kw * c.depth * c.width * 4,
            tiled.GROUPS: c.groups, tiled.T1: kh, tiled.T2: t2,
        }  # fmt: skip
        tasks = c.groups * part.blocks * times
        records.append(Record(tiled.run_tiled, fields, tasks, layer, "backward_weight", "tiled"))
    return records


def bias_gradient(dy: View, one: Address, private: Address, layer: str) -> list[Record]:
    """Records that add the sum of dy over its pixels to `private`: a product with a row of ones."""
    at_once, times, summed = over_pixels(dy)
    records = []
    for part in split_columns(dy.channels):
        shift = part.first * 4
        fields = {
            **summed, **cut(1, part, at_once * dy.width), tiled.A: one, tiled.B: dy.address + shift,
            tiled.SBJ: part.vectors * current_isa().vector_width * 4, tiled.C: private + shift,
            tiled.GROUPS: 1, tiled.T1: 1, tiled.T2: 1,
        }  # fmt: skip
        records.append(Record(tiled.run_tiled, fields, part.blocks * times, layer, "backward_weight", "tiled"))
    return records
