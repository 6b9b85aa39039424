"""All network architectures by name, and the function that builds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from core.errors import ConfigError, Problem
from core.graph import Graph
from core.models import squeezenet
from core.models.mobilenet import mobilenetv2, mobilenetv3_large, mobilenetv3_small
from core.models.options import Architecture, Options
from core.models.sequential import alexnet, cnn, mlp

MODELS: Final[Mapping[str, Architecture]] = {
    "squeezenet1_0": squeezenet.squeezenet1_0,
    "squeezenet1_1": squeezenet.squeezenet1_1,
    "squeezenet1_0_bn": partial(squeezenet.squeezenet1_0, norm=True),
    "squeezenet1_1_bn": partial(squeezenet.squeezenet1_1, norm=True),
    "squeezenet1_1_wide_bn": partial(squeezenet.squeezenet1_1_wide, norm=True, bypass=squeezenet.SIMPLE),
    "squeezenet1_0_bypass": partial(squeezenet.squeezenet1_0, bypass=squeezenet.SIMPLE),
    "squeezenet1_0_complex_bypass": partial(squeezenet.squeezenet1_0, bypass=squeezenet.COMPLEX),
    "squeezenet1_1_bypass": partial(squeezenet.squeezenet1_1, bypass=squeezenet.SIMPLE),
    "squeezenet1_1_complex_bypass": partial(squeezenet.squeezenet1_1, bypass=squeezenet.COMPLEX),
    "alexnet": alexnet,
    "mobilenetv2": mobilenetv2,
    "mobilenetv2_wide": partial(mobilenetv2, width=1.4),
    "mobilenetv3_small": mobilenetv3_small,
    "mobilenetv3_large": mobilenetv3_large,
    "cnn": cnn,
    "mlp": mlp,
}


def build(name: str, classes: int, image_size: int = 224, dropout: float = 0.5, **options: Any) -> Graph:
    """Build the network `name` up to its logits. `options`: the other fields of `core.models.options.Options`.

    Raises ConfigError where there is no such network, no class, or its windows do not fit the image.
    """
    if name not in MODELS:
        raise ConfigError([Problem("model", f"{name!r} is not one of {', '.join(MODELS)}.")])
    if classes < 1:
        raise ConfigError([Problem("classes", f"must be at least 1 (it is {classes}).")])
    chosen = replace(Options(classes, image_size, dropout=dropout), **options)
    try:
        return replace(MODELS[name](chosen), name=name)
    except ValueError as error:
        sentence = f"{name} cannot be built for photos of {image_size} pixels: {error}"
        raise ConfigError([Problem("image_size", sentence)]) from error
