"""The options of all networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from core.errors import InputError
from core.graph import Graph
from core.ops.builder import Builder

IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_STD: Final = (0.229, 0.224, 0.225)
DIGIT_MEAN: Final = (0.1307,)
"""Mean and deviation of MNIST's training digits, for photos of one channel."""
DIGIT_STD: Final = (0.3081,)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an architecture; each uses some of them.

    image_size: side of the photo, pixels; channels: 3 (RGB) or 1 (grey); padding: "same", of the small CNN also "full"
    or "valid"; activation: "relu", of the MLP also "sigmoid".
    """

    classes: int
    image_size: int = 224
    channels: int = 3
    dropout: float = 0.5
    padding: str = "same"
    activation: str = "relu"


def round_channels(wanted: float) -> int:
    """Return the nearest multiple of 8 that is at least nine tenths of the number, as torchvision rounds channels."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


Architecture: TypeAlias = Callable[[Options], Graph]


def start(
    name: str, options: Options, paddings: Sequence[str] = ("same",), activations: Sequence[str] = ("relu",)
) -> Builder:
    """Return a builder with only the photo. Raises InputError for a padding or activation that the network lacks."""
    for what, given, known in (("padding", options.padding, paddings), ("activation", options.activation, activations)):
        if given not in known:
            raise InputError(f"The {what} of {name} is {' or '.join(known)}, not {given!r}.")
    mean, std = (DIGIT_MEAN, DIGIT_STD) if options.channels == 1 else (IMAGENET_MEAN, IMAGENET_STD)
    return Builder(name, (options.image_size, options.image_size, options.channels), mean, std)
