"""Backward records of every op, in the reverse order of the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from core.cpu import batch_norm as bn
from core.cpu import elementwise as ew
from core.cpu import loss, pooling
from core.cpu.activation import number_of
from core.cpu.backward_products import convolution_backward, depthwise_backward
from core.cpu.forward import as_image, dropout_settings, everywhere, pool_fields, pool_shares
from core.cpu.geometry import View
from core.cpu.gradients import GradientTarget, Ledger, lone_clip
from core.cpu.lowering import Lowering, map_record
from core.cpu.records import Address, Record
from core.ops.activation import ACTIVATIONS
from core.ops.op_table import LOSSES
from core.program import Step, Value


def backward_records(lowering: Lowering, wanted: frozenset[str], given: bool = False) -> list[Record]:
    """List all backward records. Every step reads the gradient of its output, masked by its fused activation.

    given: the gradient of the last step's output is written beforehand, without its mask.
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


def _pool(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    masks = step.op == "max_pool" and lone_clip(lowering, step) > 0  # by winners that the forward record closed
    target = ledger.targets(step, masks)[0]
    if target is None:
        return []
    dy = lowering.d(step.output)
    fields = pool_fields(step, target.dx, dy) | {pooling.ACCUMULATE: int(target.accumulate)}
    if step.op == "max_pool":
        fields[pooling.AUX] = lowering.buffers.address(f"w {step.node}")
        kernel = pooling.run_max_pool_backward
    else:
        fields[pooling.AUX] = pool_shares(lowering, step)
        kernel = pooling.run_avg_pool_backward
    return [*target.before, Record(kernel, fields, target.dx.height, step.node, "backward_input", "fused")]


def _copy(lowering: Lowering, step: Step, target: GradientTarget, dy: View, **more: object) -> list[Record]:
    record = map_record(
        step.node, "backward_input", more.pop("mode", ew.COPY), target.dx, dy, target.y,  # type: ignore[arg-type]
        activation=target.clip, accumulate=target.accumulate, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return [*target.before, record]


def _activation(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    """An activation of its own: its gradient in the place of its output's, then whatever mask its input needs."""
    target = ledger.targets(step, masks=False)[0]
    if target is None:
        return []
    dy, seen = lowering.d(step.output), lowering.x(step.inputs[0] if ACTIVATIONS[step.op].needs_input else step.output)
    own = map_record(step.node, "backward_input", ew.COPY, dy, dy, seen, activation=number_of(step.op, step.node))
    return [own, *_copy(lowering, step, target, dy)]


def _add(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    records: list[Record] = []
    for value in step.inputs:
        if value.buffer in ledger.wanted:
            records += _copy(lowering, step, ledger.target(step, value, True), lowering.d(step.output))
    return records


def _multiply(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    """Of the image: the factors times dy; of the factors: the sum over all pixels of the image times dy."""
    image, factor = ledger.targets(step, masks=False)
    dy, x, scale = lowering.d(step.output), lowering.x(step.inputs[0]), lowering.x(step.inputs[1])
    records: list[Record] = []
    if image is not None:
        own = map_record(
            step.node, "backward_input", ew.MULTIPLY, image.dx, dy, everywhere(scale, dy), accumulate=image.accumulate
        )
        records += [*image.before, own]
    if factor is not None:
        summed = map_record(
            step.node, "backward_input", ew.COPY, everywhere(factor.dx, dy), dy, x, accumulate=factor.accumulate
        )
        records += [*factor.before, replace(summed, kernel=ew.run_factor_gradient, tasks=1)]
    return records


def _concat(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    records: list[Record] = []
    channel = step.output.channel
    for value in step.inputs:
        part = Value(step.output.buffer, value.shape, channel)
        channel += value.shape[-1]
        if value.buffer in ledger.wanted:
            records += _copy(lowering, step, ledger.target(step, value, True), lowering.d(part))
    return records


def _flatten(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    target = ledger.targets(step)[0]
    return [] if target is None else _copy(lowering, step, target, as_image(lowering.d(step.output), target.dx))


def _dropout(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    target = ledger.targets(step)[0]
    if target is None:
        return []
    scale, limit, key = dropout_settings(step)
    dy = lowering.d(step.output)
    return _copy(lowering, step, target, dy, mode=ew.DROPOUT, scale=lowering.constant([scale]), shift=limit, key=key)


def _softmax(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    target = ledger.targets(step, masks=False)[0]
    if target is None:
        return []
    y, dy = lowering.x(step.output), lowering.d(step.output)
    records = list(target.before)
    for row in range(y.height):
        for column in range(y.width):
            fields: dict[int, int | Address] = {
                loss.X: y.at(row, column), loss.Y: dy.at(row, column), loss.DX: target.dx.at(row, column),
                loss.CHANNELS: y.channels, loss.ACCUMULATE: int(target.accumulate),
            }  # fmt: skip
            records.append(Record(loss.run_softmax_backward, fields, 1, step.node, "backward_input", "fused"))
    return records


def _cross_entropy(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    value = step.inputs[0]
    x = lowering.x(value)
    fields: dict[int, int | Address] = {loss.X: x.address, loss.CHANNELS: x.channels}
    kernel = loss.run_binary_cross_entropy
    if step.op == "softmax_cross_entropy":
        kernel, weights = loss.run_cross_entropy, step.attributes["class_weights"] or (1.0,) * x.channels
        smoothing = float(step.attributes["label_smoothing"])  # type: ignore[arg-type]
        fields[loss.SMOOTHING] = lowering.constant([smoothing])
        fields[loss.WEIGHTS] = lowering.constant(weights)  # type: ignore[arg-type]
    before: tuple[Record, ...] = ()
    if value.buffer in ledger.wanted:
        target = ledger.target(step, value, False)
        before = target.before
        fields |= {loss.DX: target.dx.address, loss.ACCUMULATE: int(target.accumulate)}
    return [*before, Record(kernel, fields, 1, step.node, "backward_input", "fused")]


def _batch_norm(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x, dy = lowering.x(step.inputs[0]), lowering.d(step.output)
    saved, sums = lowering.moments[step.node]
    frozen = bool(step.attributes["frozen"])
    target = ledger.targets(step, masks=frozen)[0]
    if frozen:
        if target is None:
            return []
        scale = saved + 8 * x.channels
        shift = lowering.constant(np.zeros(x.channels, np.float32))
        return _copy(lowering, step, target, dy, mode=ew.AFFINE, scale=scale, shift=shift)
    factors, spare = lowering.reserve(3 * x.channels), lowering.reserve(x.channels)
    fields: dict[int, int | Address] = {
        bn.X: x.address, bn.X_ROW: x.row, bn.X_PIXEL: x.pixel, bn.HEIGHT: x.height, bn.WIDTH: x.width,
        bn.CHANNELS: x.channels, bn.DY: dy.address, bn.DY_ROW: dy.row, bn.DY_PIXEL: dy.pixel,
        bn.SUMS: sums, bn.SAVED: saved, bn.COEFFICIENTS: factors,
        bn.GAMMA: lowering.parameter(step, "weight"),
        bn.WEIGHT: lowering.private(step, "weight") if lowering.trains(step, "weight") else spare,
        bn.BIAS: lowering.private(step, "bias") if lowering.trains(step, "bias") else spare,
    }  # fmt: skip
    blocks = -(-x.channels // bn.BLOCK)
    records = [
        Record(bn.run_gradient_sums, fields, 1, step.node, "backward_weight", "fused"),
        Record(bn.run_gradient_merge, fields, blocks, step.node, "backward_weight", "fused", once=True),
    ]
    if target is not None:
        records += target.before
        records.append(
            map_record(
                step.node, "backward_input", ew.NORM_GRADIENT, target.dx, dy, x,
                scale=factors, accumulate=target.accumulate,
            )
        )  # fmt: skip
    return records


BACKWARD: Final[Mapping[str, Callable[[Lowering, Step, Ledger], list[Record]]]] = {
    "conv2d": convolution_backward,
    "dense": convolution_backward,
    "depthwise_conv2d": depthwise_backward,
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_avg_pool": _pool,
    **dict.fromkeys(ACTIVATIONS, _activation),
    "softmax": _softmax,
    **dict.fromkeys(LOSSES, _cross_entropy),
    "concat": _concat,
    "add": _add,
    "multiply": _multiply,
    "batch_norm": _batch_norm,
    "dropout": _dropout,
    "flatten": _flatten,
}
