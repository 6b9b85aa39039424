"""Which depthwise convolutions stand between two batch norms: those are computed in one pass with both.

The normalised input of such a convolution and the gradient of its output are never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from core.gpu.frame import Frame
from core.ops.window import read_window
from core.program import Step, Value


@final
@dataclass(frozen=True, slots=True)
class Between:
    """A depthwise 3x3, the batch norm that makes its input and the one that reads its output."""

    before: Step
    convolution: Step
    after: Step


def is_walkable(step: Step) -> bool:
    """Whether the kernels that walk down the columns compute this depthwise convolution."""
    window = read_window(step.attributes)
    return window.kernel == (3, 3) and window.stride in ((1, 1), (2, 2)) and window.padding[:2] == (1, 1)


def between_norms(frame: Frame, step: Step) -> Between | None:
    """The neighbours of a depthwise convolution in training, where it can be computed with them."""
    if step.op != "depthwise_conv2d" or not frame.program.training or not is_walkable(step):
        return None
    before = _only(s for s in frame.program.steps if s.output.buffer == step.inputs[0].buffer)
    after = _only(_readers(frame, step.output))
    if before is None or after is None or _only(_readers(frame, before.output)) is not step:
        return None
    moving = all(s.op == "batch_norm" and not s.attributes["frozen"] for s in (before, after))
    plain = not step.activation and all(p.role == "weight" for p in step.parameters)
    whole = all(v.channel == 0 and frame.program.buffers[v.buffer] == v.shape for v in (before.output, step.output))
    learns = all(frame.trains(s, "weight") for s in (before, step, after))
    return Between(before, step, after) if moving and plain and whole and learns else None


def is_read_raw(frame: Frame, norm: Step) -> bool:
    """Whether the only reader of a batch norm's output computes it itself."""
    reader = _only(_readers(frame, norm.output))
    return reader is not None and between_norms(frame, reader) is not None


def is_undone_behind(frame: Frame, norm: Step) -> bool:
    """Whether the gradient of a batch norm's input is computed by the convolution that made that input."""
    maker = _only(s for s in frame.program.steps if s.output == norm.inputs[0])
    return maker is not None and between_norms(frame, maker) is not None


def _readers(frame: Frame, value: Value) -> list[Step]:
    return [s for s in frame.program.steps if any(v.buffer == value.buffer for v in s.inputs)]


def _only(steps: object) -> Step | None:
    found = list(steps)  # type: ignore[call-overload]
    return found[0] if len(found) == 1 else None
