"""Records of a convolution's input gradient: plain convolutions of the output gradient with the rotated filter."""

from __future__ import annotations

from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.convolution import Convolution, count_taps
from core.cpu.cutting import each_panel, pack_record, packed_product, panel_floats
from core.cpu.geometry import View, phases
from core.cpu.records import Address, Record


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
    c: Convolution, dy: View, dx: View, y: View, flags: int,
    weight: Address, panel: Address, layer: str,
) -> tuple[list[Record], list[Record], list[tuple[int, int, int, int]]]:  # fmt: skip
    """Records of ``dx = dy * rotated filter``, records that pack it, and phases (y, x, rows, columns) no tap reaches.

    One convolution for every phase of the stride; dy has a border as `gradient_border` says. y: the activations that
    the flags' mask reads.
    """
    if _covers(c, (dx.height, dx.width)):
        return *_whole_input_gradient(c, dy, dx, y, flags, weight, panel, layer), []
    records, packs, empty = [], [], []
    (kh, kw), (sh, sw) = c.kernel, c.stride
    tap = c.depth * 4
    for sy in phases(dx.height, kh, sh, c.padding[0]):
        for sx in phases(dx.width, kw, sw, c.padding[1]):
            if not sy.taps * sx.taps:
                empty.append((sy.first, sx.first, sy.count, sx.count))
                continue
            counts = count_taps(dy, (sy.taps, sx.taps), c.width, c.groups == 1)
            for part, at in each_panel(panel, c.depth, c.groups, sy.taps * sx.taps * c.width):
                fields = packed_product(part, at, sx.count, counts, c.groups, sy.count)
                shift = part.first * 4
                fields |= {
                    tiled.A: dy.at(sy.lowest, sx.lowest), mk.SAM: dy.pixel, mk.SAX: dy.pixel, mk.SAY: dy.row,
                    tiled.SAR: dy.row, tiled.SAG: c.width * 4,
                    tiled.C: dx.at(sy.first, sx.first) + shift, mk.LDC: sw * dx.pixel,
                    tiled.SCR: sh * dx.row, tiled.SCG: tap, mk.FLAGS: flags,
                    tiled.MASK_AT: y.at(sy.first, sx.first) + shift, mk.LDM: sw * y.pixel, tiled.SMR: sh * y.row,
                    tiled.SMG: tap,
                }  # fmt: skip
                tasks = c.groups * part.blocks * sy.count
                records.append(Record(tiled.run_tiled, fields, tasks, layer, "backward_input", "tiled"))
                first_y, first_x = sy.tap + sh * (sy.taps - 1), sx.tap + sw * (sx.taps - 1)
                source = weight + ((first_y * kw + first_x) * tap + shift)
                strides = (4, -sh * kw * tap, -sw * tap, kh * kw * tap, c.width * kh * kw * tap)
                packs.append(pack_record(part, source, at, (sy.taps, sx.taps, c.width), strides, c.groups, layer))
            panel = panel + 4 * panel_floats(c.depth, c.groups, sy.taps * sx.taps * c.width)
    return records, packs, empty


def _whole_input_gradient(
    c: Convolution, dy: View, dx: View, y: View, flags: int,
    weight: Address, panel: Address, layer: str,
) -> tuple[list[Record], list[Record]]:  # fmt: skip
    """`input_gradient` where each pixel of dx has taps of its own and meets the one pixel of dy: nothing slides.

    As a sliding window it would multiply zeros for all but one of its taps (14x14: 196 times the work). Rows whose
    pixels touch are one run of columns and the rows are groups; else each row's pixels are.
    """
    (kh, kw), records, packs = c.kernel, [], []
    joined = dx.pixel == y.pixel == c.depth * 4
    groups, count = (kh, kw * c.depth) if joined else (kw, c.depth)
    for row in range(1 if joined else kh):
        for part, at in each_panel(panel, count, groups, c.filters):
            shift = part.first * 4
            fields = packed_product(part, at, 1, (1, 1, c.filters), groups, 1) | {
                tiled.A: dy.address, tiled.C: dx.at(row, 0) + shift, tiled.SCG: dx.row if joined else dx.pixel,
                mk.FLAGS: flags, tiled.MASK_AT: y.at(row, 0) + shift, tiled.SMG: y.row if joined else y.pixel,
            }  # fmt: skip
            records.append(Record(tiled.run_tiled, fields, groups * part.blocks, layer, "backward_input", "tiled"))
            strides = (4, 0, 0, kh * kw * c.depth * 4, count * 4)
            source = weight + (row * kw * c.depth * 4 + shift)
            packs.append(pack_record(part, source, at, (1, 1, c.filters), strides, groups, layer))
        panel = panel + 4 * panel_floats(count, groups, c.filters)
    return records, packs
