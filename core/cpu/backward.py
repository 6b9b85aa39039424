"""Backward records of every op, in the reverse order of the steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from core.cpu import batch_norm as bn
from core.cpu import elementwise as ew
from core.cpu import loss, pooling
from core.cpu.activation import number_of
from core.cpu.forward import as_image, at_every_pixel, dropout_options, pool_fields, pool_shares
from core.cpu.geometry import View
from core.cpu.gradients import GradientTarget, Ledger, lone_clip
from core.cpu.lowering import Lowering, map_record
from core.cpu.records import Fields, Record
from core.ops.activation import ACTIVATIONS
from core.ops.op_table import LOSSES
from core.program import Step, concat_slices


def backward_records(lowering: Lowering, wanted: frozenset[str], given: bool = False) -> list[Record]:
    """List all backward records. Every step reads the gradient of its output, masked by its fused activation.

    given: the gradient of the last step's output is written by the caller, without its mask.
    """
    ledger = Ledger(lowering, wanted)
    if given:
        ledger.give(lowering.program.output)
    records: list[Record] = []
    for step in reversed(lowering.program.steps):
        if step.op in LOSSES:
            records += lowering.writers[step.node].backward(lowering, step, ledger)
        elif step.output.buffer in wanted:
            before, due = ledger.settle(step)
            records += before
            if due:
                dy, y = lowering.d(step.output), lowering.x(step.output)
                records.append(map_record(step.node, "backward_input", ew.COPY, dy, dy, y, activation=due))
            records += lowering.writers[step.node].backward(lowering, step, ledger)
    return records


def write_pool(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    masks = step.op == "max_pool" and lone_clip(lowering, step) > 0  # the forward record dropped the masked winners
    target = ledger.targets(step, masks)[0]
    if target is None:
        return []
    fields = pool_fields(step, target.dx, lowering.d(step.output)) | {pooling.ACCUMULATE: int(target.accumulate)}
    if step.op == "max_pool":
        fields[pooling.AUX] = lowering.buffers.whole(f"w {step.node}").address
        kernel = pooling.run_max_pool_backward
    else:
        fields[pooling.AUX] = pool_shares(lowering, step)
        kernel = pooling.run_avg_pool_backward
    return [*target.before, Record(kernel, fields, target.dx.height, step.node, "backward_input", "fused")]


def _map(step: Step, target: GradientTarget | None, dy: View, mode: int = ew.COPY, **more: Any) -> list[Record]:
    """List the elementwise record of an input's gradient, none if it is not needed."""
    if target is None:
        return []
    record = map_record(
        step.node, "backward_input", mode, target.dx, dy, target.y, activation=target.clip,
        accumulate=target.accumulate, **more,
    )  # fmt: skip
    return [*target.before, record]


def write_activation(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    """List the activation's own gradient, in place of its output's, then the copy with the mask of its input."""
    target = ledger.targets(step, masks=False)[0]
    dy, seen = lowering.d(step.output), lowering.x(step.inputs[0] if ACTIVATIONS[step.op].needs_input else step.output)
    own = map_record(step.node, "backward_input", ew.COPY, dy, dy, seen, activation=number_of(step.op, step.node))
    return [own, *_map(step, target, dy)]


def write_add(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    dy = lowering.d(step.output)
    return [record for target in ledger.targets(step) for record in _map(step, target, dy)]


def write_multiply(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    """List the gradients of image and factors: factors times dy, and the sum over all pixels of image times dy."""
    image, factor = ledger.targets(step, masks=False)
    dy, x, scale = lowering.d(step.output), lowering.x(step.inputs[0]), lowering.x(step.inputs[1])
    records: list[Record] = []
    if image is not None:
        records += _map(step, replace(image, y=at_every_pixel(scale, dy)), dy, ew.MULTIPLY)
    if factor is not None:
        *before, summed = _map(step, replace(factor, dx=at_every_pixel(factor.dx, dy), y=x), dy)
        records += [*before, replace(summed, kernel=ew.run_factor_gradient, tasks=1)]
    return records


def write_concat(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    slices = zip(ledger.targets(step), concat_slices(step), strict=True)
    return [record for target, (_, own) in slices for record in _map(step, target, lowering.d(own))]


def write_flatten(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    target = ledger.targets(step)[0]
    return [] if target is None else _map(step, target, as_image(lowering.d(step.output), target.dx))


def write_dropout(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    options = dropout_options(lowering, step)
    return _map(step, ledger.targets(step)[0], lowering.d(step.output), ew.DROPOUT, **options)


def write_softmax(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    target = ledger.targets(step, masks=False)[0]
    if target is None:
        return []
    y, dy = lowering.x(step.output), lowering.d(step.output)
    records = list(target.before)
    for row in range(y.height):
        for column in range(y.width):
            fields: Fields = {
                loss.X: y.at(row, column), loss.Y: dy.at(row, column), loss.DX: target.dx.at(row, column),
                loss.CHANNELS: y.channels, loss.ACCUMULATE: int(target.accumulate),
            }  # fmt: skip
            records.append(Record(loss.run_softmax_backward, fields, 1, step.node, "backward_input", "fused"))
    return records


def write_loss(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x = lowering.x(step.inputs[0])
    fields: Fields = {loss.X: x.address, loss.CHANNELS: x.channels}
    kernel = loss.run_binary_cross_entropy
    if step.op == "softmax_cross_entropy":
        kernel, weights = loss.run_cross_entropy, step.attributes["class_weights"] or (1.0,) * x.channels
        smoothing = float(step.attributes["label_smoothing"])  # type: ignore[arg-type]
        fields[loss.SMOOTHING] = lowering.constant([smoothing])
        fields[loss.WEIGHTS] = lowering.constant(weights)  # type: ignore[arg-type]
    target = ledger.targets(step, masks=False)[0]
    if target is not None:
        fields |= {loss.DX: target.dx.address, loss.ACCUMULATE: int(target.accumulate)}
    return [*(target.before if target else ()), Record(kernel, fields, 1, step.node, "backward_input", "fused")]


def write_batch_norm(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x, dy = lowering.x(step.inputs[0]), lowering.d(step.output)
    saved, sums = lowering.moments[step.node]
    frozen = bool(step.attributes["frozen"])
    target = ledger.targets(step, masks=frozen)[0]
    if frozen:
        shift = lowering.constant(np.zeros(x.channels, np.float32))
        return _map(step, target, dy, ew.AFFINE, scale=saved + 8 * x.channels, shift=shift)
    factors, spare = lowering.reserve(3 * x.channels), lowering.reserve(x.channels)
    fields: Fields = {
        **x.place(bn.X), **x.size(bn.HEIGHT), **dy.place(bn.DY), bn.SUMS: sums, bn.SAVED: saved,
        bn.COEFFICIENTS: factors, bn.GAMMA: lowering.parameter(step, "weight"),
        bn.WEIGHT: lowering.private(step, "weight") if lowering.trains(step, "weight") else spare,
        bn.BIAS: lowering.private(step, "bias") if lowering.trains(step, "bias") else spare,
    }  # fmt: skip
    blocks = -(-x.channels // bn.BLOCK)
    records = [
        Record(bn.run_gradient_sums, fields, 1, step.node, "backward_weight", "fused"),
        Record(bn.run_gradient_merge, fields, blocks, step.node, "backward_weight", "fused", once=True),
    ]
    if target is not None:
        records += _map(step, replace(target, y=x), dy, ew.NORM_GRADIENT, scale=factors)
    return records
