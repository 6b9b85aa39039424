"""The optimizer of a run, from its configuration."""

from __future__ import annotations

from core.config import RunConfig
from core.optim.optimizer import Optimizer


def optimizer_of(config: RunConfig) -> Optimizer:
    """Settings of the update kernel."""
    return Optimizer(
        name=config.optimizer, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay,
        beta1=config.beta1, beta2=config.beta2, epsilon=config.epsilon, clip_norm=config.clip_norm,
        average=config.average,
    )
