"""Named recipes: values that differ from the defaults of RunConfig, and their fit to the number of photos.

Few photos need smaller batches and more epochs. Sources: Goyal et al. 2017 (SGD: the learning rate follows the batch
size); Malladi et al. 2022 (Adam: its square root).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from core.config import RunConfig
from core.optim.optimizer import RULES


@dataclass(frozen=True, slots=True)
class Preset:
    """A recipe by name.

    idea: one line for --help and the window; steps: fewest optimizer steps that it needs (`fit_recipe`); side: pixels,
    of the photos with which a pretrained network for larger ones is trained, unless the settings have a size.
    """

    idea: str
    steps: int
    values: Mapping[str, Any]
    side: int = 1024


SGD: Final = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
ONE_CYCLE: Final = {"schedule": "one_cycle", "warmup": 0.2}
ON_GPU: Final = {
    **ONE_CYCLE, "batch_size": 128, "dropout": 0.2, "augment": "standard", "label_smoothing": 0.1,
    "precision": "mixed", "device": "cuda", "average": 0.999,
}
WITH_PICTURES: Final = {"pictures_without_leaf": 0.1}
"""For a user's own photos, which rarely include photos without a leaf."""
LEAVES: Final = {
    **ON_GPU, **SGD, "model": "squeezenet1_1_bn", "image_size": 224, "learning_rate": 0.1, "weight_decay": 5e-4,
    "sampling": "sqrt",
}
MOBILE_LEAVES: Final = {
    **LEAVES, "image_size": 256, "use_size": 288, "augment": "soft", "augment_background": 0.3, "weight_decay": 2e-4,
}

PRESETS: Final[Mapping[str, Preset]] = {
    "demo": Preset("the synthetic leaves, in about a minute on two CPU cores", 200, {
        **ONE_CYCLE, "model": "squeezenet1_1_bn", "image_size": 64, "epochs": 18, "batch_size": 16,
        "optimizer": "adamw", "learning_rate": 3e-3, "weight_decay": 1e-3, "dropout": 0.2, "augment": "light",
    }),
    "tomato-cpu": Preset("ten tomato classes from scratch, on two CPU cores", 2000, {
        **ONE_CYCLE, **SGD, "model": "squeezenet1_1_bn", "image_size": 128, "epochs": 30, "batch_size": 64,
        "learning_rate": 0.05, "weight_decay": 5e-4, "dropout": 0.2, "augment": "standard", "label_smoothing": 0.05,
        "clip_norm": 2.0, "average": 0.998, **WITH_PICTURES,
    }),
    "tomato-gpu": Preset("ten tomato classes from scratch with MobileNetV2, a short training on a GPU", 3000, {
        # measured: benchmarks/results/tomato-nvidia-h200.json
        **ON_GPU, **SGD, "model": "mobilenetv2", "image_size": 224, "use_size": 256, "epochs": 60,
        "validate_every": 10, "learning_rate": 0.1, "weight_decay": 2e-4, "warmup": 0.15, "average": 0.998,
    }),
    "transfer": Preset("a small dataset on two CPU cores, from a pretrained model (--from)", 200, {
        # all layers at 3e-4: higher validation accuracy than at 1e-3, or than with the last layers only
        **ONE_CYCLE, "epochs": 20, "batch_size": 8, "optimizer": "adamw", "learning_rate": 3e-4, "weight_decay": 1e-2,
        "dropout": 0.2, "augment": "standard", "label_smoothing": 0.05, "average": 0.9, **WITH_PICTURES,
    }, side=256),  # no less accurate than 320 pixels with up to 50 photos a class, in two thirds of the time (ADR 43)
    "gpu": Preset("from scratch on a GPU: full image size, mixed precision, long training", 3000, {
        # sgd at 0.1 after a short warm-up leaves SqueezeNet's last ReLU at 0 for good
        **ON_GPU, "model": "squeezenet1_1_bn", "image_size": 224, "epochs": 60, "optimizer": "adamw",
        "learning_rate": 4e-3, "weight_decay": 1e-2, "sampling": "balanced", "average": 0.998, **WITH_PICTURES,
    }),
    "leaves": Preset("leaf diseases with a small network, on a GPU (docs/diagnosis.md)", 3000, {
        **LEAVES, "epochs": 100, "dropout": 0.5,
    }),
    "leaves-mobile": Preset(
        "leaf diseases with MobileNetV2 and replaced backgrounds, on a GPU (docs/diagnosis.md)", 3000,
        {**MOBILE_LEAVES, "model": "mobilenetv2", "epochs": 150, "validate_every": 5},
    ),
    "leaves-mixed": Preset("leaf diseases with wide MobileNetV2 and mixup, long training on a GPU", 3000, {
        **MOBILE_LEAVES, "model": "mobilenetv2_wide", "epochs": 300, "validate_every": 10, "mix": 0.5,
    }),
    "leaves-field": Preset("more crops and field photos for a trained network, on a GPU (docs/diagnosis.md)", 3000, {
        # batch norm is folded into the pretrained filters, so only small learning rates are stable
        **ON_GPU, "use_size": 288, "epochs": 80, "validate_every": 5, "augment": "soft", "augment_background": 0.3,
        "mix": 0.5, "optimizer": "adamw", "learning_rate": 3e-4, "weight_decay": 1e-2, "clip_norm": 2.0,
        "sampling": "sqrt",
    }),
    "leaves-fast": Preset("leaf diseases, a short training on a GPU: trained at 224 pixels, evaluated at 256", 3000, {
        **LEAVES, "use_size": 256, "epochs": 46, "average": 0.998,
    }),
    "paper": Preset("SqueezeNet 1.0 as in its paper: SGD with momentum 0.9, weight decay 0.0002", 2000, {
        # the paper's learning rate, 0.04 for batches of 512, times 32 / 512; at 0.04 every ReLU died
        "model": "squeezenet1_0", "image_size": 224, "epochs": 60, "batch_size": 32, "optimizer": "sgd",
        "learning_rate": 0.0025, "momentum": 0.9, "nesterov": False, "weight_decay": 2e-4, "dropout": 0.5,
        "augment": "light", "schedule": "inverse", "warmup": 0.0, "decay": 1e-4,
    }),
}  # fmt: skip

STEPS_OF_EPOCH: Final = 20
"""Steps of an epoch below which the batch is reduced."""
LEAST_BATCH: Final = 8
"""Fewest photos of a reduced batch: batch norm statistics of fewer are noise."""


def fit_recipe(config: RunConfig, photos: int) -> tuple[RunConfig, tuple[str, ...]]:
    """The settings with which a preset reaches its `steps` on so many training photos, and a sentence if they changed.

    Batch size, learning rate and epochs change only where they are the preset's; the user's own values stay.
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
        rate *= (batch / config.batch_size) ** RULES[config.optimizer].rate_power
    if (batch, epochs) == (config.batch_size, config.epochs):
        return config, ()
    message = (
        f"{photos} training photos are few for the preset {config.preset} (batch size {config.batch_size}, "
        f"{config.epochs} epochs). This run has batch size {batch} and {epochs} epochs, so that training has "
        f"{epochs * steps} steps."
    )
    return replace(config, batch_size=batch, epochs=epochs, learning_rate=rate), (message,)
