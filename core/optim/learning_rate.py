"""Learning-rate schedules. Sources: Loshchilov and Hutter 2017 (cosine), Smith 2018 (one cycle)."""

from __future__ import annotations

from math import cos, exp, lgamma, log, pi
from typing import Final

from core.config import RunConfig

START: Final = 1 / 25
"""Rate at the start of a warm-up, as a share of the highest rate (`div_factor` of PyTorch's OneCycleLR)."""
END: Final = 1e-4 / 25
"""Rate at the end of one cycle, as a share of the highest rate (`final_div_factor`)."""


def learning_rate(config: RunConfig, step: int, total_steps: int, steps_per_epoch: int) -> float:
    """Return the rate of one step; the first is 0. `config.warmup` is the share of all steps in which the rate rises.

    "one_cycle" rises and falls by a half cosine; the others rise in a straight line, then follow
    their own rule as if there had been no warm-up: "step" multiplies by `decay` every `decay_epochs`,
    "inverse" is ``rate / (1 + decay step)``, "compounding" divides by ``1 + decay step`` in every step and so freezes
    after about ``2 / sqrt(decay)`` of them, "cosine" falls to 0 with the last step.
    """
    rate, rising = config.learning_rate, round(config.warmup * total_steps)
    if config.schedule == "one_cycle":
        return rate * one_cycle(step, rising, total_steps)
    if step < rising:
        return rate * (START + (1 - START) * step / rising)
    return {
        "constant": lambda: rate,
        "step": lambda: rate * float(config.decay ** (step // max(steps_per_epoch, 1) // config.decay_epochs)),
        "inverse": lambda: rate / (1 + config.decay * step),
        "compounding": lambda: rate * _compounded(config.decay, step),
        "cosine": lambda: rate * _fall(1.0, 0.0, (step - rising) / max(total_steps - rising, 1)),
    }[config.schedule]()


def one_cycle(step: int, rising: int, total_steps: int) -> float:
    """The rate of one step as a share of the highest, which is reached after `rising` steps."""
    if step < rising:
        return _fall(START, 1.0, step / rising)
    return _fall(1.0, END, (step - rising) / max(total_steps - rising - 1, 1))


def _compounded(decay: float, step: int) -> float:
    """The product of ``1 / (1 + decay s)`` for s = 1 ... step: ``decay**-step gamma(1 + a) / gamma(1 + a + step)`` with
    a = 1 / decay. Rounding stays below 1e-3 of it where decay is at least 1e-10 (below, nothing decays)."""
    if decay < 1e-10:
        return 1.0
    return exp(lgamma(1 + 1 / decay) - lgamma(1 + 1 / decay + step) - step * log(decay))


def _fall(first: float, last: float, share: float) -> float:
    """Return the value at `share` of half a cosine from `first` to `last`."""
    return last + (first - last) * (1 + cos(pi * min(share, 1.0))) / 2
