"""Notices a run whose loss does not fall: after its warm-up it is still where guessing is."""

from __future__ import annotations

from collections import deque
from typing import Final, final

import numpy as np

from core.ops.contract import Array

WINDOW: Final = 100
"""Steps whose mean loss is looked at."""
NO_BETTER: Final = 0.98
"""Share of the loss of guessing from which nothing is learned. A SqueezeNet whose last ReLU is 0 everywhere is at 1."""
LEVELLING: Final = {"natural": 0.0, "none": 0.0, "sqrt": 0.5, "balanced": 1.0}
"""How far sampling and class weights make the classes equally common."""


def guessing_loss(labels: Array, classes: int, sampling: str, class_weights: str, smoothing: float) -> float:
    """Cross entropy of the best constant answer to labels int ``(N,)``: the entropy of the classes as drawn."""
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    power = max(1 - LEVELLING[sampling] - LEVELLING[class_weights], 0.0)
    drawn = np.where(counts > 0, counts**power, 0.0)
    shares = (1 - smoothing) * drawn / drawn.sum() + smoothing / classes
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


@final
class StallWatch:
    """Fed every step's loss; says once that nothing is learned, from step `after` (the end of the warm-up) on."""

    def __init__(self, guessing: float, after: int) -> None:
        self._guessing, self._after = guessing, after
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._told = False

    def look(self, step: int, loss: float) -> str:
        """A sentence with what to do, or "". `step`: counted from 1."""
        self._losses.append(loss)
        if self._told or step < self._after or len(self._losses) < WINDOW:
            return ""
        mean = float(np.mean(self._losses))
        if mean < NO_BETTER * self._guessing:
            return ""
        self._told = True
        return (
            f"The loss does not fall: after {step} steps it is {mean:.3f}, and guessing gives {self._guessing:.3f}. "
            "Stop this run and start again with a tenth of the learning rate, or from the weights of a trained model."
        )
