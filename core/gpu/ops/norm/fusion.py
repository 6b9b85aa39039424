"""Which convolutions are computed in one pass with the batch norms around them.

A depthwise 3x3 between two; a 1x1 from few channels to many before one; a 1x1 from many channels to few between two.
The normalized input of such a convolution, or the gradient of its output, is then never stored.
"""

from __future__ import annotations

from core.gpu.frame import Frame, only
from core.gpu.gradients import shared_activation
from core.gpu.ops.norm.pointwise_tiles import suits_block
from core.gpu.select import FAST
from core.graph import PHOTO
from core.ops.window import POINT, read_window
from core.program import Step, Value


def suits_strips(step: Step) -> bool:
    """Whether the kernels of strips compute this depthwise convolution."""
    window = read_window(step.attributes)
    return window.kernel == (3, 3) and window.stride in ((1, 1), (2, 2)) and window.padding[:2] == (1, 1)


def between_norms(frame: Frame, step: Step) -> tuple[Step, Step] | None:
    """The batch norms before and after a depthwise convolution in training, where it is computed with them."""
    fits = step.op == "depthwise_conv2d" and frame.algorithm in FAST and _is_plain(frame, step) and suits_strips(step)
    before, after = (norm_before(frame, step), norm_after(frame, step)) if fits else (None, None)
    return (before, after) if before and after else None


def norm_before(frame: Frame, step: Step) -> Step | None:
    """The trained batch norm whose output only this step reads."""
    producer = only(s for s in frame.program.steps if s.output.buffer == step.inputs[0].buffer)
    if producer is None or frame.only_reader(producer.output) is not step:
        return None
    return producer if _is_trained(frame, producer) and _is_whole(frame, producer.output) else None


def norm_after(frame: Frame, step: Step) -> Step | None:
    """The trained batch norm that is the only reader of a step's output."""
    reader = frame.only_reader(step.output)
    return reader if reader is not None and _is_trained(frame, reader) and _is_whole(frame, step.output) else None


def expands(frame: Frame, step: Step) -> bool:
    """Whether a 1x1 convolution to many channels is computed in one pass with the batch norm after it."""
    return (
        _is_pointwise(frame, step) and norm_after(frame, step) is not None and step.inputs[0].buffer in frame.wanted
        and shared_activation(frame, step.inputs[0]) == ""
        and _suits(frame, step.output, step.inputs[0])
    )  # fmt: skip


def projects(frame: Frame, step: Step) -> bool:
    """Whether a 1x1 convolution to few channels is computed in one pass with the batch norms around it."""
    return (
        _is_pointwise(frame, step) and norm_after(frame, step) is not None and norm_before(frame, step) is not None
        and _suits(frame, step.inputs[0], step.output)
    )  # fmt: skip


def is_computed_by_reader(frame: Frame, norm: Step) -> bool:
    """Whether the only reader of a batch norm's output computes it from the batch norm's input."""
    reader = frame.only_reader(norm.output)
    return reader is not None and (between_norms(frame, reader) is not None or projects(frame, reader))


def is_computed_by_producer(frame: Frame, norm: Step) -> bool:
    """Whether the gradient of a batch norm's input is computed by the convolution that made that input."""
    producer = only(s for s in frame.program.steps if s.output == norm.inputs[0])
    return producer is not None and (between_norms(frame, producer) is not None or expands(frame, producer))


def _is_trained(frame: Frame, step: Step) -> bool:
    """Whether a step is a batch norm with statistics of the batch and a trained scale."""
    return step.op == "batch_norm" and not step.attributes["frozen"] and frame.trains(step, "weight")


def _is_whole(frame: Frame, value: Value) -> bool:
    """Whether a value is all channels of its buffer."""
    return value.channel == 0 and frame.program.buffers[value.buffer] == value.shape


def _is_plain(frame: Frame, step: Step) -> bool:
    """Whether a convolution is trained and has neither bias nor activation."""
    plain = not step.activation and all(p.role == "weight" for p in step.parameters)
    return plain and frame.program.training and frame.trains(step, "weight")


def _is_pointwise(frame: Frame, step: Step) -> bool:
    """Whether a step is a plain 1x1 convolution in bf16."""
    return (
        step.op == "conv2d" and frame.element == 2 and frame.algorithm == "auto" and _is_plain(frame, step)
        and step.inputs[0].buffer != PHOTO and read_window(step.attributes) == POINT and step.attributes["groups"] == 1
    )  # fmt: skip


def _suits(frame: Frame, wide: Value, narrow: Value) -> bool:
    """Whether there are kernels for so many channels on both sides."""
    channels = [-(-value.shape[-1] // frame.vector) * frame.vector for value in (wide, narrow)]
    return suits_block(*channels) and len(narrow.shape) == 3
