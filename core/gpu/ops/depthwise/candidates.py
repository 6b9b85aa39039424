"""Candidates for depthwise convolutions."""

from __future__ import annotations

from typing import Final

from core.gpu.select import BACKWARD, BF16, FORWARD, Candidate, Case
from core.gpu.writers import depthwise_steps
from core.gpu.writers.few import walks


def _refuse_few(case: Case) -> str:
    suits = walks.suits_one_output_a_thread(case.frame, case.step)
    return "" if suits else "It computes the predictions of few pixels that it was measured the fastest for."


def _refuse_expand(case: Case) -> str:
    suits = walks.walks_behind(case.frame, *case.steps)
    return "" if suits else "It computes a 1x1 convolution of few pixels and the 3x3 depthwise one behind it."


CANDIDATES: Final = (
    Candidate("strips", ("depthwise_conv2d",), FORWARD, lambda c: depthwise_steps.forward(c.frame, c.step),
              "3x3: a thread moves down a strip; any other window: one output a thread"),
    Candidate("depthwise_few", ("depthwise_conv2d",), FORWARD, lambda c: c.frame.add(walks.depthwise(c.frame, c.step)),
              "one output a thread, for few pixels", "auto", 0.6, _refuse_few, arithmetics=BF16),
    Candidate("expand_few", ("conv2d", "depthwise_conv2d"), FORWARD,
              lambda c: c.frame.add(walks.expand_walk(c.frame, *c.steps)),
              "the expansion stays in shared memory for the depthwise convolution behind it", "auto", 0.6,
              _refuse_expand, arithmetics=BF16),
    Candidate("strips", ("depthwise_conv2d",), BACKWARD, lambda c: depthwise_steps.backward(c.backward, c.step),
              "a thread moves down a strip; nine sums of the filters' gradient in registers"),
)  # fmt: skip
