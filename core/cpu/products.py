"""Records of convolutions and dense layers; in networks of dense layers, those are computed for all images at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from core.cpu import convolution as conv
from core.cpu import microkernel as mk
from core.cpu import tiled
from core.cpu.geometry import View
from core.cpu.gradients import Ledger
from core.cpu.lowering import Lowering
from core.cpu.records import Fields, Record
from core.cpu.tiling import Columns, split_columns, tile_fields
from core.program import Program, Step

DENSE_SHARE: Final = 1 / 16
"""Share of a network's multiply-adds above which its dense layers are computed for all images at once: image by image
their weights are read again and again, but all other layers stay in the caches of their thread."""

IMAGES_PER_TASK: Final = 12
UNITS_PER_TASK: Final = 48
"""Rows of one task: whole tiles, and enough tasks for many threads."""


def is_dense_dominated(program: Program) -> bool:
    """Return whether dense layers have a share of the work that justifies separate memory for every image."""
    dense = sum(step.cost.flops for step in program.steps if step.op == "dense")
    return dense > DENSE_SHARE * sum(step.cost.flops for step in program.steps)


def write_forward(lowering: Lowering, step: Step) -> list[Record]:
    x, y = lowering.x(step.inputs[0]), lowering.x(step.output)
    return _for_batch(lowering, step, conv.forward_records(lowering, step, conv.convolution_of(lowering, step), x, y))


def write_backward(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x, dy, records = lowering.x(step.inputs[0]), lowering.d(step.output), list[Record]()
    c, together = conv.convolution_of(lowering, step), lowering.is_together(step)
    if lowering.trains(step, "weight"):
        records += (_batch_weight_gradient if together else conv.weight_gradient)(lowering, step, c, x, dy)
    if lowering.trains(step, "bias"):
        records += (_batch_bias_gradient if together else conv.bias_gradient)(lowering, step, dy)
    target = ledger.targets(step)[0]
    if target is not None:
        records += _for_batch(lowering, step, conv.input_gradient(lowering, step, c, dy, target))
    return records


def _for_batch(lowering: Lowering, step: Step, records: list[Record]) -> list[Record]:
    """Turn products of one row into products with a row for every image where the layer is computed that way."""
    if not lowering.is_together(step):
        return records
    slot, rows = lowering.buffers.slot_bytes, -(-lowering.batch // IMAGES_PER_TASK)
    return [
        replace(
            record, kernel=tiled.run_tiled_batch, tasks=record.tasks * rows, once=True, fields={
                **record.fields, mk.SAM: slot, mk.LDC: slot, mk.LDM: slot,
                tiled.ROWS: rows, tiled.AT_ONCE: IMAGES_PER_TASK, tiled.HEIGHT: 0,
            },
        ) if record.kernel is tiled.run_tiled else record
        for record in records
    ]  # fmt: skip


def _batch_weight_gradient(lowering: Lowering, step: Step, c: conv.Convolution, x: View, dy: View) -> list[Record]:
    """List the records that add the weights' gradient, (units, inputs) as the parameter itself, over all images.

    A window row of contiguous pixels is one run of columns, with the rows as groups; otherwise the pixels of a row are
    the groups.
    """
    (kh, kw), tap, slot = c.kernel, c.depth * 4, lowering.buffers.slot_bytes
    joined, gradient, records = x.pixel == tap, lowering.whole(step, "weight"), []
    groups, count = (kh, kw * c.depth) if joined else (kw, c.depth)
    for row in range(1 if joined else kh):
        for part in split_columns(count):
            fields = _sum_over_images(part, c.filters, slot) | {
                tiled.GROUPS: groups, tiled.A: dy.address, mk.SAM: 4, mk.SAY: slot,
                tiled.B: x.at(row, 0) + part.first * 4, tiled.SBG: x.row if joined else x.pixel,
                tiled.C: gradient + (row * kw * tap + part.first * 4), tiled.SCG: count * 4, mk.LDC: kh * kw * tap,
            }  # fmt: skip
            tasks = groups * part.blocks * -(-c.filters // UNITS_PER_TASK)
            records.append(_batch_record(step, fields, tasks))
    return records


def _batch_bias_gradient(lowering: Lowering, step: Step, dy: View) -> list[Record]:
    """List the records that add the sum of dy over all images: a product with a row of ones."""
    one, gradient, records = lowering.constant([1.0]), lowering.whole(step, "bias"), []
    for part in split_columns(dy.channels):
        fields = _sum_over_images(part, 1, lowering.buffers.slot_bytes) | {
            tiled.GROUPS: 1, tiled.A: one, tiled.B: dy.address + part.first * 4, tiled.C: gradient + part.first * 4,
        }  # fmt: skip
        records.append(_batch_record(step, fields, part.blocks))
    return records


def _sum_over_images(part: Columns, height: int, slot_bytes: int) -> Fields:
    """Return the fields of a product that sums over images: they are the outermost loop of the tile."""
    return {
        **tile_fields(part), tiled.SBJ: part.block_bytes, mk.SBY: slot_bytes, mk.KW: 1, mk.KL: 1,
        mk.FLAGS: mk.ACCUMULATE, tiled.ROWS: -(-height // UNITS_PER_TASK), tiled.HEIGHT: height,
        tiled.AT_ONCE: UNITS_PER_TASK,
    }  # fmt: skip


def _batch_record(step: Step, fields: Fields, tasks: int) -> Record:
    return Record(tiled.run_tiled_batch, fields, tasks, step.node, "backward_weight", "tiled", once=True)
