"""Records of a convolution forward; a dense layer is one whose window is the whole input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.activation import clip_of
from core.cpu.cutting import each_panel, pack_record, packed_product
from core.cpu.geometry import Border, View
from core.cpu.records import NOWHERE, Address, Record


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


def count_taps(view: View, kernel: tuple[int, int], depth: int, whole: bool) -> tuple[int, int, int]:
    """(rows of taps, taps in a row, floats of a tap); a row whose taps touch is one long tap."""
    if whole and view.pixel == depth * 4:
        return kernel[0], 1, kernel[1] * depth
    return kernel[0], kernel[1], depth


def is_by_row(c: Convolution, x: View, y: View) -> bool:
    """Whether threads share an image's rows, each reading the whole filter, or its columns: what is less to read."""
    weights = c.filters * c.kernel[0] * c.kernel[1] * c.depth
    return weights <= x.height * x.width * c.channels + y.height * y.width * c.filters


def forward_records(
    c: Convolution, x: View, y: View, panel: Address, bias: Address, activation: int, layer: str
) -> list[Record]:
    """``y = end(bias + x * filter)``; x has a zero border as wide as the window reaches."""
    records = []
    counts = count_taps(x, c.kernel, c.depth, c.groups == 1)
    start = x.at(-c.padding[0], -c.padding[1])
    by_row = is_by_row(c, x, y)
    for part, at in each_panel(panel, c.width, c.groups, c.kernel[0] * c.kernel[1] * c.depth, y.width):
        fields = packed_product(part, at, y.width, counts, c.groups, y.height)
        shift = part.first * 4
        fields |= {
            tiled.A: start, mk.SAM: c.stride[1] * x.pixel, mk.SAX: x.pixel, mk.SAY: x.row,
            tiled.SAR: c.stride[0] * x.row, tiled.SAG: c.depth * 4,
            tiled.C: y.address + shift, mk.LDC: y.pixel, tiled.SCR: y.row, tiled.SCG: c.width * 4,
            tiled.X: bias + shift, tiled.SXG: c.width * 4,
            mk.FLAGS: mk.END_FLAGS[clip_of(activation)] | (mk.BIAS if bias != NOWHERE else 0),
            tiled.ACTIVATION: activation,
        }  # fmt: skip
        tasks = c.groups * part.blocks * y.height
        fields[tiled.BY_ROW] = int(by_row)
        records.append(Record(tiled.run_tiled, fields, tasks, layer, "forward", "tiled"))
    return records


def forward_packs(c: Convolution, width: int, weight: Address, panel: Address, layer: str) -> list[Record]:
    """Records that pack the filter (OHWI) for `forward_records` of images of that width."""
    kh, kw = c.kernel
    size = kh * kw * c.depth * 4
    records = []
    for part, at in each_panel(panel, c.width, c.groups, kh * kw * c.depth, width):
        source = weight + part.first * size
        strides = (size, 0, 0, 4, c.width * size)
        records.append(pack_record(part, source, at, (1, 1, kh * kw * c.depth), strides, c.groups, layer))
    return records
