"""Backward records of convolutions, dense and depthwise layers: gradients of their parameters and of their input."""

from __future__ import annotations

from core.cpu import depthwise
from core.cpu import elementwise as ew
from core.cpu import microkernel as mk
from core.cpu.convolution import Convolution
from core.cpu.dense import dense_bias_gradient, dense_gradient, for_all_photos
from core.cpu.forward import pack_depthwise
from core.cpu.geometry import View
from core.cpu.gradients import GradientTarget, Ledger
from core.cpu.input_gradient import gradient_panel_floats, input_gradient
from core.cpu.lowering import Lowering, convolution_of, map_record, zero_record
from core.cpu.records import Record
from core.cpu.weight_gradient import bias_gradient, weight_gradient
from core.ops.window import read_window
from core.program import Step


def convolution_backward(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x, dy = lowering.x(step.inputs[0]), lowering.d(step.output)
    c = convolution_of(step, lowering.image(step.inputs[0]))
    records = _parameter_gradients(lowering, step, c, x, dy)
    target = ledger.targets(step)[0]
    if target is None:
        return records
    size = gradient_panel_floats(c, (x.height, x.width))
    weight, panel = lowering.parameter(step, "weight"), lowering.reserve(max(size, 1))
    products, packs, empty = input_gradient(c, dy, target.dx, target.y, _flags(target), weight, panel, step.node)
    if lowering.is_together(step):
        products = [for_all_photos(record, lowering.buffers.slot_bytes, lowering.batch) for record in products]
    lowering.packs.extend(packs)
    return [*records, *target.before, *_fill(lowering, step, target, empty, c.stride), *products]


def _parameter_gradients(lowering: Lowering, step: Step, c: Convolution, x: View, dy: View) -> list[Record]:
    records: list[Record] = []
    one, together, slot = lowering.constant([1.0]), lowering.is_together(step), lowering.buffers.slot_bytes
    if lowering.trains(step, "weight") and together:
        records += dense_gradient(c, x, dy, lowering.whole(step, "weight"), slot, step.node)
    elif lowering.trains(step, "weight"):
        records += weight_gradient(c, x, dy, lowering.private(step, "weight"), step.node)
    if lowering.trains(step, "bias") and together:
        records += dense_bias_gradient(dy, one, lowering.whole(step, "bias"), slot, step.node)
    elif lowering.trains(step, "bias"):
        records += bias_gradient(dy, one, lowering.private(step, "bias"), step.node)
    return records


def depthwise_backward(lowering: Lowering, step: Step, ledger: Ledger) -> list[Record]:
    x, dy, window = lowering.x(step.inputs[0]), lowering.d(step.output), read_window(step.attributes)
    records: list[Record] = []
    if lowering.trains(step, "weight"):
        records += depthwise.weight_gradient(window, x, dy, lowering.private(step, "weight"), step.node)
    if lowering.trains(step, "bias"):
        records += bias_gradient(dy, lowering.constant([1.0]), lowering.private(step, "bias"), step.node)
    target = ledger.targets(step)[0]
    if target is None:
        return records
    taps = pack_depthwise(lowering, step)
    products, empty = depthwise.input_gradient(window, dy, target.dx, target.y, _flags(target), taps, step.node)
    return [*records, *target.before, *_fill(lowering, step, target, empty, window.stride), *products]


def _flags(target: GradientTarget) -> int:
    return mk.MASK_FLAGS[target.clip] | (mk.ACCUMULATE if target.accumulate else 0)


def _fill(
    lowering: Lowering, step: Step, target: GradientTarget, empty: list[tuple[int, int, int, int]],
    stride: tuple[int, int],
) -> list[Record]:  # fmt: skip
    """The phases of an input gradient that no tap reaches: zeros, or the mask of what is there."""
    records = []
    for place in empty:
        dx, y = _phase(target.dx, place, stride), _phase(target.y, place, stride)
        if not target.accumulate:
            records.append(zero_record(lowering, step.node, dx))
        elif target.clip:
            records.append(map_record(step.node, "backward_input", ew.COPY, dx, dx, y, activation=target.clip))
    return records


def _phase(view: View, place: tuple[int, int, int, int], stride: tuple[int, int]) -> View:
    y, x, height, width = place
    return View(view.at(y, x), height, width, view.channels, view.row * stride[0], view.pixel * stride[1])
