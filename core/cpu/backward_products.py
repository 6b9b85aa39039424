"""Backward records of convolutions, dense and depthwise layers: gradients of their parameters and of their input."""

from __future__ import annotations

from core.cpu import depthwise
from core.cpu import elementwise as ew
from core.cpu import microkernel as mk
from core.cpu.convolution import Convolution
from core.cpu.dense import dense_bias_gradient, dense_gradient, for_all_photos
from core.cpu.forward import pack_depthwise
from core.cpu.geometry import View
from core.cpu.gradients import Ledger, Target
from core.cpu.input_gradient import gradient_panel_floats, input_gradient
from core.cpu.lowering import Frame, convolution_of, map_record, zero_record
from core.cpu.records import Address, Record, Space
from core.cpu.weight_gradient import bias_gradient, weight_gradient
from core.ops.window import read_window
from core.program import Step


def convolution_backward(frame: Frame, step: Step, ledger: Ledger) -> list[Record]:
    x, dy = frame.x(step.inputs[0]), frame.d(step.output)
    c = convolution_of(step, frame.image(step.inputs[0]))
    records = _parameter_gradients(frame, step, c, x, dy)
    target = ledger.targets(step)[0]
    if target is None:
        return records
    size = gradient_panel_floats(c, (x.height, x.width))
    panel = Address(Space.SHARED, frame.memory(max(size, 1)).ctypes.data)
    weight = frame.parameter(step, "weight")
    assert weight is not None
    mask = target.y if target.clip else None
    products, packs, empty = input_gradient(c, dy, target.dx, mask, _flags(target), weight, panel, step.node)
    if frame.is_together(step):
        products = [for_all_photos(record, frame.buffers.slot_bytes, frame.batch) for record in products]
    frame.packs.extend(packs)
    return [*records, *target.before, *_fill(frame, step, target, empty, c.stride), *products]


def _parameter_gradients(frame: Frame, step: Step, c: Convolution, x: View, dy: View) -> list[Record]:
    records: list[Record] = []
    one, together, slot = frame.constant([1.0]), frame.is_together(step), frame.buffers.slot_bytes
    if frame.trains(step, "weight") and together:
        records += dense_gradient(c, x, dy, frame.whole(step, "weight"), slot, step.node)
    elif frame.trains(step, "weight"):
        records += weight_gradient(c, x, dy, frame.private(step, "weight"), step.node)
    if frame.trains(step, "bias") and together:
        records += dense_bias_gradient(dy, one, frame.whole(step, "bias"), slot, step.node)
    elif frame.trains(step, "bias"):
        records += bias_gradient(dy, one, frame.private(step, "bias"), step.node)
    return records


def depthwise_backward(frame: Frame, step: Step, ledger: Ledger) -> list[Record]:
    x, dy, window = frame.x(step.inputs[0]), frame.d(step.output), read_window(step.attributes)
    records: list[Record] = []
    if frame.trains(step, "weight"):
        records += depthwise.weight_gradient(window, x, dy, frame.private(step, "weight"), step.node)
    if frame.trains(step, "bias"):
        records += bias_gradient(dy, frame.constant([1.0]), frame.private(step, "bias"), step.node)
    target = ledger.targets(step)[0]
    if target is None:
        return records
    taps, mask = pack_depthwise(frame, step), target.y if target.clip else None
    products, empty = depthwise.input_gradient(window, dy, target.dx, mask, _flags(target), taps, step.node)
    return [*records, *target.before, *_fill(frame, step, target, empty, window.stride), *products]


def _flags(target: Target) -> int:
    return mk.MASK_FLAGS[target.clip] | (mk.ACCUMULATE if target.accumulate else 0)


def _fill(
    frame: Frame, step: Step, target: Target, empty: list[tuple[int, int, int, int]], stride: tuple[int, int]
) -> list[Record]:
    """The phases of an input gradient that no tap reaches: zeros, or the mask of what is there."""
    records = []
    for place in empty:
        dx, y = _phase(target.dx, place, stride), _phase(target.y, place, stride)
        if not target.accumulate:
            records.append(zero_record(frame, step.node, dx))
        elif target.clip:
            records.append(map_record(step.node, "backward_input", ew.COPY, dx, dx, y, activation=target.clip))
    return records


def _phase(view: View, place: tuple[int, int, int, int], stride: tuple[int, int]) -> View:
    y, x, height, width = place
    return View(view.at(y, x), height, width, view.channels, view.row * stride[0], view.pixel * stride[1])
