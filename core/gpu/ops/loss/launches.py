"""Launches of softmax's gradient, of the global average, and of the loss."""

from __future__ import annotations

from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.kernels.passes import head_fast
from core.gpu.launch import RELU, blocks_of, lanes_of, simple_launch
from core.gpu.select import Case
from core.gpu.writers.plain_launches import head_launch, softmax_gradient_launch
from core.program import Step


def ends_in_head(frame: Frame, step: Step) -> bool:
    """Whether a global average's output is the logits: the head computes it with the loss."""
    return step.output == frame.program.output


def loss(walk: Backward) -> None:
    """The loss, and the gradient of what feeds the head."""
    frame, program = walk.frame, walk.frame.program
    producer = next((s for s in program.steps if s.output == program.output), None)
    value = program.output
    if producer is not None and producer.op == "global_avg_pool":
        value = producer.inputs[0]
        walk.claim(program.output)
    gradient, mask = None, ""
    if walk.wants(value):
        _, mask, _ = walk.target(value)
        gradient = frame.image(value, True)
    frame.add(head_launch(frame, gradient, mask))


def softmax_backward(case: Case) -> None:
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    if case.backward.wants(value):
        mask, activation, add = case.backward.target(value)
        frame.add(softmax_gradient_launch(frame, step, frame.image(value, True), mask, activation, add))


def average_forward(case: Case) -> None:
    frame, step = case.frame, case.step
    x, out = frame.image(step.inputs[0]), frame.image(step.output)
    hw, lanes = x.height * x.width, lanes_of(x)
    frame.add(
        simple_launch(
            step.node,
            "forward",
            "fused",
            "passes.head_fast",
            "make_average",
            (frame.element,),
            head_fast.POOL_ARGUMENTS,
            (blocks_of(lanes, 32), frame.batch, 1),
            (32, 8, 1),
            (x.address, out.address, 0, hw, lanes, x.pitch, out.pitch, 0, 0, 0, 1 / hw),
        )
    )


def average_backward(case: Case) -> None:
    frame, step, value = case.frame, case.step, case.step.inputs[0]
    if not case.backward.wants(value):
        return
    mask, activation, add = case.backward.target(value)
    dy, dx = frame.image(step.output, True), frame.image(value, True)
    hw, lanes = dx.height * dx.width, lanes_of(dx)
    values = (
        dy.address,
        dx.address,
        mask.address if mask else 0,
        hw,
        lanes,
        dy.pitch,
        dx.pitch,
        mask.pitch if mask else 0,
        RELU[activation] if mask else 0,
        int(add),
        1 / hw,
    )
    frame.add(
        simple_launch(
            step.node,
            "backward_input",
            "fused",
            "passes.head_fast",
            "make_average_gradient",
            (frame.element,),
            head_fast.POOL_ARGUMENTS,
            (frame.batch, 1, 1),
            (head_fast.THREADS, 1, 1),
            values,
        )
    )
