"""Detects a run whose loss does not fall: after the warm-up it is still at the level of guessing."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from core.ops.contract import Array

WINDOW: Final = 100
"""Steps over which the mean loss is taken."""
NO_BETTER: Final = 0.98
"""Ratio to the loss of guessing above which nothing is learned. A SqueezeNet whose last ReLU is 0 is at 1."""
BETTER: Final = 0.9
"""Ratio to the loss of guessing below which a run that seemed to stall is learning."""
LEVELLING: Final = {"natural": 0.0, "none": 0.0, "sqrt": 0.5, "balanced": 1.0}
"""How much each sampling and class weighting equalizes class frequencies, 0..1."""


def guessing_loss(
    labels: Array, classes: int, sampling: str, class_weights: str, smoothing: float, targets: Array | None = None
) -> float:
    """Loss of the best constant prediction for labels int ``(N,)``: the entropy of the classes as drawn and weighted.

    targets: of every label, ``(labels, classes)``, where it is the binary cross entropy.
    """
    counts = np.bincount(labels, minlength=classes if targets is None else len(targets)).astype(np.float64)
    drawn = np.where(counts > 0, counts ** (1 - LEVELLING[sampling]), 0.0)
    drawn /= drawn.sum()
    if targets is not None:
        p = np.clip(drawn @ targets, 1e-12, 1 - 1e-12)
        return float(-(p * np.log(p) + (1 - p) * np.log(1 - p)).mean())
    weights = np.maximum(counts, 1) ** -LEVELLING[class_weights]
    shares = weights * ((1 - smoothing) * drawn + smoothing / classes) / (weights @ drawn)
    shares = shares[shares > 0]  # their sum is 1, except with smoothing and weights
    return float(-(shares * np.log(shares / shares.sum())).sum())


class StallWatch:
    """Warns once if nothing is learned after step `after` (the end of the warm-up), and revokes the warning if the loss
    decreases later. `stalled`: whether the warning holds."""

    def __init__(self, guessing: float, after: int) -> None:
        self._guessing, self._after = guessing, after
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._warned = self.stalled = False

    def look(self, step: int, loss: float) -> str:
        """A warning, a sentence that it no longer holds, or "". `step`: counted from 1."""
        self._losses.append(loss)
        if step < self._after or len(self._losses) < WINDOW:
            return ""
        mean = float(np.mean(self._losses))
        if self.stalled and mean < BETTER * self._guessing:
            self.stalled = False
            return f"The loss is decreasing now: after {step} steps it is {mean:.3f}."
        if self._warned or mean < NO_BETTER * self._guessing:
            return ""
        self._warned = self.stalled = True
        return (
            f"The loss is not decreasing: after {step} steps it is {mean:.3f}; guessing gives {self._guessing:.3f}. "
            "Stop this run and start again with a tenth of the learning rate, or from a pretrained model."
        )
