"""Records of dense layers that are computed for all images at once (`core.cpu.tiled`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.convolution import Convolution
from core.cpu.cutting import Columns, split_columns, tile_fields
from core.cpu.geometry import View
from core.cpu.instruction_set import current_isa
from core.cpu.records import Address, Record
from core.program import Program

DENSE_SHARE: Final = 1 / 16
"""Share of a network's multiply-adds from which on its dense layers are computed together: image by image their
weights are read again and again, but all other layers keep to the caches of their thread."""

PHOTOS_AT_ONCE: Final = 24
UNITS_AT_ONCE: Final = 48
"""Rows of one task: multiples of every tile's height but 5."""


def is_dense_dominated(program: Program) -> bool:
    """True if the dense layers have a share of the work that justifies separate memory for every image."""
    work = {step.node: step.cost.flops for step in program.steps}
    dense = sum(step.cost.flops for step in program.steps if step.op == "dense")
    return dense > DENSE_SHARE * sum(work.values())


def for_all_photos(record: Record, slot_bytes: int, batch: int) -> Record:
    """A product with one row, as one with a row for every image."""
    lines = -(-batch // PHOTOS_AT_ONCE)
    fields = {
        **record.fields, mk.SAM: slot_bytes, mk.LDC: slot_bytes, mk.LDM: slot_bytes,
        tiled.ROWS: lines, tiled.AT_ONCE: PHOTOS_AT_ONCE, tiled.HEIGHT: 0,
    }  # fmt: skip
    tasks = record.tasks * lines
    return replace(record, kernel=tiled.run_tiled_batch, fields=fields, tasks=tasks, name="batch", once=True)


def dense_gradient(c: Convolution, x: View, dy: View, gradient: Address, slot_bytes: int, layer: str) -> list[Record]:
    """Records that add the weights' gradient, (units, inputs) as the parameter itself, over all images."""
    (kh, kw), tap = c.kernel, c.depth * 4
    joined = x.pixel == tap  # a window row is one run of columns, and the rows are groups; else each row's pixels are
    groups, count = (kh, kw * c.depth) if joined else (kw, c.depth)
    records = []
    for row in range(1 if joined else kh):
        for part in split_columns(count):
            fields = _sum_over_photos(part, c.filters, slot_bytes) | {
                tiled.GROUPS: groups, tiled.A: dy.address, mk.SAM: 4, mk.SAY: slot_bytes,
                tiled.B: x.at(row, 0) + part.first * 4, tiled.SBG: x.row if joined else x.pixel,
                tiled.C: gradient + (row * kw * tap + part.first * 4), tiled.SCG: count * 4, mk.LDC: kh * kw * tap,
            }  # fmt: skip
            tasks = groups * part.blocks * int(fields[tiled.ROWS])  # type: ignore[arg-type]
            records.append(Record(tiled.run_tiled_batch, fields, tasks, layer, "backward_weight", "batch", once=True))
    return records


def dense_bias_gradient(dy: View, one: Address, gradient: Address, slot_bytes: int, layer: str) -> list[Record]:
    """Records that add the sum of dy over all images: a product with a row of ones."""
    records = []
    for part in split_columns(dy.channels):
        fields = _sum_over_photos(part, 1, slot_bytes) | {
            tiled.GROUPS: 1, tiled.A: one, tiled.B: dy.address + part.first * 4, tiled.C: gradient + part.first * 4,
        }  # fmt: skip
        records.append(Record(tiled.run_tiled_batch, fields, part.blocks, layer, "backward_weight", "batch", once=True))
    return records


def _sum_over_photos(part: Columns, height: int, slot_bytes: int) -> dict[int, int | Address]:
    """Fields of a product that sums over images: the outermost count of the tile's loop is theirs."""
    return {
        **tile_fields(part),
        tiled.SBJ: part.vectors * current_isa().vector_width * 4, mk.SBY: slot_bytes, mk.KW: 1, mk.KL: 1,
        mk.FLAGS: mk.ACCUMULATE, tiled.ROWS: -(-height // UNITS_AT_ONCE), tiled.HEIGHT: height,
        tiled.AT_ONCE: UNITS_AT_ONCE,
    }  # fmt: skip
