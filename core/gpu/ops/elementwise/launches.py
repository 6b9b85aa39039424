"""Launches of elementwise work, forward and backward: sums, activations, concatenations, dropout."""

from __future__ import annotations

from core.gpu.frame import Frame
from core.gpu.launch import PLAIN, RELU, THREADS, Launch, Target, Tensor, blocks_of, make_launch, vectors_of
from core.gpu.ops.elementwise import combine, factor_gradient
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.select import Case
from core.ops.activation import ACTIVATIONS as REFERENCES
from core.ops.dropout import threshold
from core.program import Step, Value

MODULE = "ops.elementwise.combine"


def combine_launch(
    frame: Frame, layer: str, direction: str, kind: str, a: Tensor, b: Tensor | None, out: Tensor,
    activation: str = "", target: Target = PLAIN,
) -> Launch:  # fmt: skip
    """The launch of a kind of `combine.make_combine`."""
    lanes, area = vectors_of(a), a.height * a.width
    total = frame.batch * area * lanes
    values = {
        "a": a.address, "b": b.address if b else 0, "out": out.address, "total": total, "lanes": lanes,
        "by_lanes": lanes, "by_area": area, "lda": a.pitch, "ldb": b.pitch if b else 0, "ldo": out.pitch,
        "activation": RELU[activation], **target.values,
    }  # fmt: skip
    return make_launch(
        layer, direction, "fused", (MODULE, "make_combine", (frame.element, kind)), combine.COMBINE, values,
        (blocks_of(total, THREADS), 1, 1), moved=total * 16 * (1 + bool(b) + target.passes),
    )  # fmt: skip


def refuse_padded(case: Case) -> str:
    """A flattened image is one vector only if no padding lies between its pixels."""
    frame, buffers = case.frame, case.frame.program.buffers
    flattened = (value.buffer for value in case.step.inputs if frame.is_flattened(value))
    padded = next((name for name in flattened if buffers[name][-1] % frame.vector), "")
    return f"It needs a multiple of {frame.vector} channels in the flattened image {padded}." if padded else ""


def forward(case: Case) -> None:
    """A sum, a product, or an activation that is an op of its own."""
    frame, step = case.frame, case.step
    kind = step.op if step.op in ACTIVATIONS else {"multiply": "product"}.get(step.op, "sum")
    a = frame.shaped(step.inputs[0])
    b = frame.shaped(step.inputs[1]) if len(step.inputs) > 1 else None
    frame.add(combine_launch(frame, step.node, "forward", kind, a, b, frame.shaped(step.output), step.activation))


def backward(case: Case) -> None:
    """The gradient of each input that wants one."""
    step, backward = case.step, case.backward
    for value in step.inputs:
        if backward.wants(value):
            case.frame.add(_input_gradient(case, value, step.output))


def concat_forward(case: Case) -> None:
    """A copy of each input."""
    frame, step, channel = case.frame, case.step, 0
    for value in step.inputs:
        part = Value(step.output.buffer, value.shape, step.output.channel + channel)
        frame.add(combine_launch(frame, step.node, "forward", "sum", frame.shaped(value), None, frame.shaped(part)))
        channel += value.shape[-1]


def concat_backward(case: Case) -> None:
    """A copy of each input's part of the gradient."""
    step, channel = case.step, 0
    for value in step.inputs:
        source = Value(step.output.buffer, value.shape, step.output.channel + channel)
        channel += value.shape[-1]
        if case.backward.wants(value):
            case.frame.add(_input_gradient(case, value, source))


def multiply_backward(case: Case) -> None:
    """The gradient of the activations and that of the factors, where they are wanted."""
    frame, step, backward = case.frame, case.step, case.backward
    dy, (value, factors) = frame.shaped(step.output, True), step.inputs
    if backward.wants(value):
        sides = dy, frame.shaped(factors), frame.shaped(value, True)
        frame.add(combine_launch(frame, step.node, "backward_input", "product", *sides, "", backward.target(value)))
    if backward.wants(factors):
        x, out, lanes, area = frame.shaped(value), frame.shaped(factors, True), vectors_of(dy), dy.height * dy.width
        values = {
            "a": dy.address, "b": x.address, "out": out.address, "hw": area, "lanes": lanes, "lda": dy.pitch,
            "ldb": x.pitch, "ldo": out.pitch, **backward.target(factors).values,
        }  # fmt: skip
        made = ("ops.elementwise.factor_gradient", "make_factor_gradient", (frame.element,))
        block = (factor_gradient.WIDE, factor_gradient.ROWS, 1)
        frame.add(make_launch(
            step.node, "backward_input", "fused", made, factor_gradient.SIGNATURE, values,
            (blocks_of(lanes, block[0]), frame.batch, 1), block, moved=frame.batch * area * lanes * 32,
        ))  # fmt: skip


def _input_gradient(case: Case, value: Value, source: Value) -> Launch:
    frame, step = case.frame, case.step
    target = case.backward.target(value)
    dy, dx = frame.shaped(source, True), frame.shaped(value, True)
    kind, seen = "sum", None
    if step.op in ACTIVATIONS:
        kind = f"{step.op}_gradient"
        seen = frame.shaped(value if REFERENCES[step.op].needs_input else step.output)
    return combine_launch(frame, step.node, "backward_input", kind, dy, seen, dx, "", target)


def apply_mask(frame: Frame, step: Step) -> None:
    """Apply the gradient of a step's own activation to the gradient of its output, in place."""
    dy, y = frame.shaped(step.output, True), frame.shaped(step.output)
    frame.add(combine_launch(frame, step.node, "backward_input", "sum", dy, None, dy, "", Target(y, step.activation)))


def dropout_forward(case: Case) -> None:
    frame, step = case.frame, case.step
    frame.add(_dropout(case, "forward", frame.shaped(step.inputs[0]), frame.shaped(step.output), PLAIN))


def dropout_backward(case: Case) -> None:
    """The same draw as forward."""
    frame, step = case.frame, case.step
    target = case.backward.target(step.inputs[0])
    dy, dx = frame.shaped(step.output, True), frame.shaped(step.inputs[0], True)
    frame.add(_dropout(case, "backward_input", dy, dx, target))


def _dropout(case: Case, direction: str, a: Tensor, out: Tensor, target: Target) -> Launch:
    frame, step, lanes, area = case.frame, case.step, vectors_of(a), a.height * a.width
    total, rate = frame.batch * area * lanes, float(step.attributes["rate"])  # type: ignore[arg-type]
    values = {
        "a": a.address, "out": out.address, "control": frame.addresses.control, "total": total, "lanes": lanes,
        "channels": a.channels, "by_lanes": lanes, "by_area": area, "area": area, "lda": a.pitch, "ldo": out.pitch,
        **target.values, "key": step.attributes["key"], "threshold": threshold(rate), "scale": 1 / (1 - rate),
    }  # fmt: skip
    return make_launch(
        step.node, direction, "fused", (MODULE, "make_dropout", (frame.element,)), combine.DROPOUT, values,
        (blocks_of(total, THREADS), 1, 1), moved=total * 16 * (1 + target.passes),
    )  # fmt: skip
