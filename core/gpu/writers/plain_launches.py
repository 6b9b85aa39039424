"""Launches of the plain kernels, made from tensors: softmax, photo and head."""

from __future__ import annotations

import numpy as np

from core.errors import KernelUnavailable
from core.gpu.frame import Frame, bias_of, has_bias  # noqa: F401
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.kernels.passes import head_fast, photo_fast, softmax_fast
from core.gpu.launch import RELU, RESIDENT, SUM_BLOCKS, THREADS, Launch, Tensor, blocks_of, lanes_of, simple_launch  # noqa: F401
from core.gpu.writers import control
from core.graph import PHOTO
from core.program import Step, Value


def photo_launch(frame: Frame) -> Launch:
    """From uint8 photos to the photo buffer."""
    node = frame.program.graph.node(PHOTO)
    height, width, channels = node.shape
    x = frame.image(Value(PHOTO, node.shape))
    top, left = frame.border[:2]
    at = frame.places.control
    _, index, rows, *_ = control.places(frame.batch)
    mean, std = [tuple(float(v) for v in node.attributes[k]) for k in ("mean", "std")]  # type: ignore[union-attr]
    padded = [(*mean, 0.0, 0.0)[:3], tuple(1 / s for s in (*std, 1.0, 1.0)[:3])]
    total = height * width
    values = (
        at, at + control.SOURCE, at + rows, at + index, x.address + (top * x.width + left) * x.pitch * x.element,
        total, height, width, *fast_divisor(width), x.width, x.height * x.width,
        *padded[0], *padded[1],
    )
    blocks = blocks_of(total, THREADS * photo_fast.PIXELS)
    if blocks * frame.batch < RESIDENT * frame.processors:
        blocks = blocks_of(total, THREADS)
    return simple_launch(
        PHOTO, "forward", "fused", "passes.photo_fast", "make_photo", (frame.element, channels, x.pitch),
        photo_fast.ARGUMENTS, (blocks, frame.batch, 1), (THREADS, 1, 1), values,
        moved=frame.batch * total * (3 + x.pitch * x.element), blocks=4,
    )


def softmax_launch(frame: Frame, step: Step) -> Launch:
    """Over the channels of every pixel."""
    x, out = softmax_image(frame, step.inputs[0]), frame.image(step.output)
    return _softmax(frame, step, "forward", "make_softmax", x, None, None, "", out, False)


def softmax_gradient_launch(
    frame: Frame, step: Step, dx: Tensor, mask: Tensor | None, masking: str, accumulate: bool
) -> Launch:
    """From dy and the probabilities themselves."""
    dy, y = frame.image(step.output, True), frame.image(step.output)
    return _softmax(frame, step, "backward_input", "make_softmax_gradient", dy, y, mask, masking, dx, accumulate)


def softmax_image(frame: Frame, value: Value) -> Tensor:
    """The input as pixels; a flattened image's features are not channels of one pixel."""
    if len(value.shape) != len(frame.program.buffers[value.buffer]):
        raise KernelUnavailable(f"The GPU has no kernel for the softmax of a flattened image ({value.buffer}).")
    return frame.image(value)


def _softmax(
    frame: Frame, step: Step, direction: str, factory: str, x: Tensor, y: Tensor | None, mask: Tensor | None,
    masking: str, out: Tensor, accumulate: bool,
) -> Launch:  # fmt: skip
    pixels, lanes, warps = frame.batch * out.height * out.width, lanes_of(out), softmax_fast.WARPS
    values = (
        x.address, y.address if y else 0, mask.address if mask else 0, out.address, pixels, out.channels, lanes,
        x.pitch, y.pitch if y else 0, mask.pitch if mask else 0, out.pitch, RELU[masking] if mask else 0,
        int(accumulate),
    )
    return simple_launch(
        step.node, direction, "fused", "passes.softmax_fast", factory, (frame.element,), softmax_fast.ARGUMENTS,
        (blocks_of(pixels, warps), 1, 1), (32 * warps, 1, 1), values,
        moved=pixels * lanes * 16 * (2 + bool(y) + bool(mask) + int(accumulate)),
    )


def head_launch(frame: Frame, gradient: Tensor | None, mask: str) -> Launch:
    """Logits in float32, and for training the loss, the hits and the gradient of what feeds the head."""
    program = frame.program
    producer = next((s for s in program.steps if s.output == program.output), None)
    source = producer.inputs[0] if producer is not None and producer.op == "global_avg_pool" else program.output
    x = frame.image(source)
    classes, hw = program.output.shape[-1], x.height * x.width
    at, taught = frame.places.control, program.taught > 0
    labels, _, _, targets, _ = control.places(frame.batch)
    weights, smoothing = 0, 0.0
    if program.training:
        attributes = program.steps[-1].attributes
        smoothing = float(attributes["label_smoothing"])  # type: ignore[arg-type]
        if attributes["class_weights"]:
            table = np.asarray(attributes["class_weights"], np.float32).view(np.int32)
            weights = frame.table("class weights", lambda: table)
    values = (
        x.address, frame.places.logits, gradient.address if gradient else 0, at + labels if program.training else 0,
        weights, at + targets if taught else 0, frame.places.results, at, hw, classes, x.pitch,
        gradient.pitch if gradient else 0, frame.batch, RELU[mask], smoothing,
    )
    return simple_launch(
        "loss" if program.training else "logits", "forward", "fused", "passes.head_fast", "make_head",
        (frame.element, *((True,) if taught else ())), head_fast.ARGUMENTS, (frame.batch, 1, 1),
        (head_fast.THREADS, 1, 1), values, head_fast.shared_bytes(classes, frame.element),
    )
