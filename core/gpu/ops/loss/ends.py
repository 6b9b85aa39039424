"""Both ends of a network: the image before its steps, the logits and the loss behind them."""

from __future__ import annotations

from core.gpu.frame import Frame
from core.gpu.ops.image.launches import image_launch as image_launch
from core.gpu.ops.loss.launches import ends_in_head, head_launch, loss
from core.ops.op_table import LOSSES
from core.program import Step

write_loss = loss


def is_computed_with_loss(frame: Frame, step: Step) -> bool:
    """Whether the launch of the logits computes the step: the loss, and a global average whose output they are."""
    return step.op in LOSSES or (step.op == "global_avg_pool" and ends_in_head(frame, step))


def write_logits(frame: Frame) -> None:
    """The logits of a prediction."""
    frame.add(head_launch(frame, None, ""))
