"""Candidates for depthwise convolutions."""

from __future__ import annotations

from typing import Final

from core.gpu.select import BACKWARD, FORWARD, Candidate
from core.gpu.writers import depthwise_steps

CANDIDATES: Final = (
    Candidate("strips", ("depthwise_conv2d",), FORWARD, lambda c: depthwise_steps.forward(c.frame, c.step),
              "3x3: a thread moves down a strip; any other window: one output a thread"),
    Candidate("strips", ("depthwise_conv2d",), BACKWARD, lambda c: depthwise_steps.backward(c.backward, c.step),
              "a thread moves down a strip; nine sums of the filters' gradient in registers"),
)  # fmt: skip
