"""Candidates for softmax, the global average, and the end of a prediction."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.loss import launches
from core.gpu.select import BF16, FORWARD, INPUT, Candidate, Case
from core.gpu.writers.few import ends
from core.gpu.writers.plain_launches import softmax_launch


def _refuse_classifier(case: Case) -> str:
    suits = ends.ends_in_classifier(case.frame, *case.steps)
    return "" if suits else "It computes the last two steps of a prediction for one or two images."


CANDIDATES: Final = (
    Candidate("warp", ("softmax",), FORWARD, lambda c: c.frame.add(softmax_launch(c.frame, c.step)),
              "a warp a pixel, 16 bytes a thread"),
    Candidate("warp", ("softmax",), INPUT, launches.softmax_backward,
              "a warp a pixel, one sum"),
    Candidate("vector", ("global_avg_pool",), FORWARD, launches.average_forward,
              "eight rows of vectors an image meet in shared memory"),
    Candidate("vector", ("global_avg_pool",), INPUT, launches.average_backward,
              "a block an image spreads the gradient evenly"),
    Candidate("classify_few", ("global_avg_pool", "dense"), FORWARD,
              lambda c: c.frame.add(ends.classify(c.frame, *c.steps)),
              "average, dense layer and logits of one or two images in one launch", "auto", 0.5, _refuse_classifier,
              arithmetics=BF16),
)  # fmt: skip
