"""Launches of softmax, and of the end of a network: logits, loss and its gradient."""

from __future__ import annotations

import numpy as np

from core.gpu.control import find_offsets
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.launch import PLAIN, RELU, KernelSignature, Launch, Target, Tensor, blocks_of, make_launch, vectors_of
from core.gpu.ops.loss import head, softmax
from core.gpu.select import FAST, Case
from core.ops.op_table import LOSSES
from core.program import Step, Value

MULTI = "sigmoid_cross_entropy"


def ends_in_head(frame: Frame, step: Step) -> bool:
    """Whether a global average's output is the logits: the head computes it with the loss, but not for teaching."""
    return step.output == frame.program.output and frame.algorithm in FAST


def _source(frame: Frame) -> Value:
    """What the head reads: the input of the global average that makes the logits, or the logits themselves."""
    output = frame.program.output
    producer = next((s for s in frame.program.steps if s.output == output), None)
    if producer is None or producer.op != "global_avg_pool" or not ends_in_head(frame, producer):
        return output
    return producer.inputs[0]


def is_computed_with_loss(frame: Frame, step: Step) -> bool:
    """Whether the launch of the logits computes the step: the loss, and a global average whose output they are."""
    return step.op in LOSSES or (step.op == "global_avg_pool" and ends_in_head(frame, step))


def write_logits(frame: Frame) -> None:
    """The logits of a prediction."""
    frame.add(head_launch(frame, None, ""))


def write_loss(backward: Backward) -> None:
    """The loss, and the gradient of what feeds the head."""
    frame, output = backward.frame, backward.frame.program.output
    value, gradient, masking = _source(backward.frame), None, ""
    if value != output:
        backward.claim(output)
    if backward.wants(value):
        _, masking, _ = backward.target(value)
        gradient = frame.shaped(value, True)
    frame.add(head_launch(frame, gradient, masking))


def head_launch(frame: Frame, gradient: Tensor | None, masking: str) -> Launch:
    """Logits in float32, and for training the loss, the hits and the gradient of what feeds the head."""
    program, x, control = frame.program, frame.shaped(_source(frame)), frame.addresses.control
    classes, taught = program.output.shape[-1], program.taught > 0
    offsets = find_offsets(frame.batch)
    weights, smoothing = 0, 0.0
    if program.training:
        attributes = program.steps[-1].attributes
        smoothing = float(attributes.get("label_smoothing", 0.0))  # type: ignore[arg-type]
        if attributes.get("class_weights"):
            table = np.asarray(attributes["class_weights"], np.float32).view(np.int32)
            weights = frame.table("class weights", lambda: table)
    values = {
        "x": x.address, "logits": frame.addresses.logits, "dx": gradient.address if gradient else 0,
        "labels": control + offsets.labels if program.training else 0, "weights": weights,
        "targets": control + offsets.targets if taught else 0, "results": frame.addresses.results, "control": control,
        "hw": x.height * x.width, "classes": classes, "ldx": x.pitch, "ldd": gradient.pitch if gradient else 0,
        "batch": frame.batch, "activation": RELU[masking], "smoothing": smoothing,
    }  # fmt: skip
    made = ("ops.loss.head", "make_head", (frame.element, *((True,) if taught else ())))
    if program.training and program.steps[-1].op == MULTI:
        made = ("ops.loss.label_head", "make_label_head", (frame.element,))
    return make_launch(
        "loss" if program.training else "logits", "forward", "fused", made, head.HEAD, values,
        (frame.batch, 1, 1), (head.THREADS, 1, 1), head.shared_bytes(classes, frame.element),
    )  # fmt: skip


def loss_forward(case: Case) -> None:
    """The loss by itself."""
    case.frame.add(head_launch(case.frame, None, ""))


def loss_backward(case: Case) -> None:
    """The loss and its gradient by themselves."""
    case.frame.add(head_launch(case.frame, case.frame.image(case.step.inputs[0], True), ""))


def refuse_flat(case: Case) -> str:
    """A flattened image's features are not channels of one pixel."""
    value = case.step.inputs[0]
    return f"It has no softmax of a flattened image ({value.buffer})." if case.frame.is_flattened(value) else ""


def softmax_forward(case: Case) -> None:
    """Over the channels of every pixel."""
    frame, step = case.frame, case.step
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    frame.add(_softmax(case, "forward", softmax.FORWARD, {"x": x.address, "ldx": x.pitch}, None, out))


def softmax_backward(case: Case) -> None:
    """From dy and the probabilities themselves."""
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    target = case.backward.target(value)
    dx, dy, y = frame.image(value, True), frame.image(step.output, True), frame.image(step.output)
    of = {"dy": dy.address, "ldx": dy.pitch}
    frame.add(_softmax(case, "backward_input", softmax.GRADIENT, of, y, dx, target))


def _softmax(
    case: Case, direction: str, signature: KernelSignature, of: dict[str, int], y: Tensor | None, out: Tensor,
    target: Target = PLAIN,
) -> Launch:  # fmt: skip
    pixels, lanes = case.frame.batch * out.height * out.width, vectors_of(out)
    values = {
        **of, "y": y.address if y else 0, "out": out.address, "pixels": pixels, "channels": out.channels,
        "lanes": lanes, "ldy": y.pitch if y else 0, "ldo": out.pitch, **target.values,
    }  # fmt: skip
    factory = "make_softmax" if y is None else "make_softmax_gradient"
    return make_launch(
        case.step.node, direction, "fused", ("ops.loss.softmax", factory, (case.frame.element,)), signature, values,
        (blocks_of(pixels, softmax.WARPS), 1, 1), (32 * softmax.WARPS, 1, 1),
        moved=pixels * lanes * 16 * (1 + bool(y) + target.passes),
    )  # fmt: skip
