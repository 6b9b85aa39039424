"""A recipe fitted to the number of photos: few photos need smaller batches and more epochs to learn at all.

Sources: Goyal et al. 2017 (SGD: the learning rate follows the batch size); Malladi et al. 2022 (Adam: its root).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from core.config import RunConfig
from core.training.presets import PRESETS

STEPS_OF_EPOCH: Final = 20
"""Steps of an epoch from which the batch is small enough: the rest comes from more epochs."""
LEAST_BATCH: Final = 8
"""Batch norm's statistics of fewer photos are noise."""
RATE_POWER: Final = {"sgd": 1.0, "adam": 0.5, "adamw": 0.5}
"""The learning rate changes by the factor of the batch size to this power."""


def fit_recipe(config: RunConfig, photos: int) -> tuple[RunConfig, tuple[str, ...]]:
    """The settings with which a preset takes its `steps` on so many training photos, and a sentence if they changed.

    Batch size, learning rate and epochs change only where they are the preset's: what the user chose stays. The warm-up
    is a share of the steps, so it keeps its length.
    """
    preset = PRESETS.get(config.preset)
    if preset is None or config.minutes:
        return config, ()
    open_fields = {name for name, value in preset.values.items() if getattr(config, name) == value}
    batch, epochs, rate = config.batch_size, config.epochs, config.learning_rate
    while ("batch_size" in open_fields and batch > LEAST_BATCH and photos < STEPS_OF_EPOCH * batch
           and epochs * (photos // batch) < preset.steps):  # fmt: skip
        batch //= 2
    steps = max(photos // max(batch, 1), 1)
    if "epochs" in open_fields and batch:
        epochs = max(epochs, ceil(preset.steps / steps))
    if "learning_rate" in open_fields and batch != config.batch_size:
        rate *= (batch / config.batch_size) ** RATE_POWER[config.optimizer]
    if (batch, epochs) == (config.batch_size, config.epochs):
        return config, ()
    message = (
        f"{photos} training photos are few for the preset {config.preset}. The batch size is {batch} instead of "
        f"{config.batch_size} and there are {epochs} epochs instead of {config.epochs}, so that training has "
        f"{epochs * steps} steps."
    )
    return replace(config, batch_size=batch, epochs=epochs, learning_rate=rate), (message,)
