"""SqueezeNet 1.0 and 1.1: plain, with bypass, with batch norm, wider. Source: Iandola et al., 2016, table 1, figure 2.

Names are those of torchvision's state dict: a parameter is ``features.3.expand3x3.weight``. With batch
norm, every convolution of the features has no bias and a batch norm of its name with ``_bn`` behind it;
the classifier's convolution keeps its bias and has none.
"""

from __future__ import annotations

from functools import partial
from typing import Final, TypeAlias

from core.graph import Graph
from core.models.options import Options, start
from core.ops.builder import Builder

Fire: TypeAlias = tuple[int, int]
"""Channels of the squeeze layer, and of each of the two expand layers."""

POOL: Final = "pool"

# torchvision numbers the features: convolution 0, ReLU 1, then these rows from 2 on.
SQUEEZENET_1_0: Final[tuple[Fire | str, ...]] = (
    POOL, (16, 64), (16, 64), (32, 128), POOL, (32, 128), (48, 192), (48, 192), (64, 256), POOL, (64, 256),
)
SQUEEZENET_1_1: Final[tuple[Fire | str, ...]] = (
    POOL, (16, 64), (16, 64), POOL, (32, 128), (32, 128), POOL, (48, 192), (48, 192), (64, 256), (64, 256),
)

SQUEEZENET_1_1_WIDE: Final[tuple[Fire | str, ...]] = (
    POOL, (32, 96), (32, 96), POOL, (48, 176), (48, 176), POOL, (64, 256), (64, 256), (80, 320), (80, 320),
)


SIMPLE: Final = "bypass"
"""The input of a fire is added to its output where shapes allow."""
COMPLEX: Final = "complex_bypass"
"""It is added everywhere, after a 1x1 convolution where shapes differ."""


def _squeezenet(
    options: Options, name: str, filters: int, kernel: int, rows: tuple[Fire | str, ...], norm: bool = False,
    bypass: str = "",
) -> Graph:  # fmt: skip
    """filters, kernel: of the first convolution."""
    b = start(name, options)
    x = _convolve(b, "features.0", "features.1", "photo", norm, filters, kernel, stride=2, padding=0)
    for index, row in enumerate(rows, start=2):
        if isinstance(row, str):
            x = b.add("max_pool", f"features.{index}", x, kernel=(3, 3), stride=(2, 2), ceil_mode=True)
        else:
            fire = _fire(b, f"features.{index}", x, row, norm)
            if bypass == COMPLEX and b.shape(x) != b.shape(fire):
                x = b.add("conv2d", f"features.{index}.bypass_conv", x, filters=b.shape(fire)[-1])
            around = bypass and b.shape(x) == b.shape(fire)
            x = b.add("add", f"features.{index}.bypass", x, fire) if around else fire
    x = b.add("dropout", "classifier.0", x, rate=options.dropout)
    x = b.add("conv2d", "classifier.1", x, filters=options.classes, init="normal_0.01")
    x = b.add("relu", "classifier.2", x)
    return b.graph(b.add("global_avg_pool", "classifier.3", x))


def _fire(b: Builder, name: str, x: str, row: Fire, norm: bool) -> str:
    """Squeeze to few channels, then expand with 1x1 and 3x3 filters side by side."""
    squeeze, expand = row
    s, one, three = f"{name}.squeeze", f"{name}.expand1x1", f"{name}.expand3x3"
    x = _convolve(b, s, f"{s}_activation", x, norm, squeeze, 1)
    left = _convolve(b, one, f"{one}_activation", x, norm, expand, 1)
    right = _convolve(b, three, f"{three}_activation", x, norm, expand, 3, padding=1)
    return b.add("concat", name, left, right)


def _convolve(
    b: Builder, name: str, activation: str, x: str, norm: bool,
    filters: int, kernel: int, stride: int = 1, padding: int = 0,
) -> str:  # fmt: skip
    x = b.add(
        "conv2d", name, x, filters=filters, kernel=(kernel, kernel), stride=(stride, stride),
        padding=(padding,) * 4, bias=not norm,
    )  # fmt: skip
    if norm:
        x = b.add("batch_norm", f"{name}_bn", x)
    return b.add("relu", activation, x)


squeezenet1_0 = partial(_squeezenet, name="squeezenet1_0", filters=96, kernel=7, rows=SQUEEZENET_1_0)
"""Seven by seven filters first, pooling late: 1,248,424 parameters at 1000 classes."""
squeezenet1_1 = partial(_squeezenet, name="squeezenet1_1", filters=64, kernel=3, rows=SQUEEZENET_1_1)
"""Three by three filters first, pooling early: 2.4 times less work, 1,235,496 parameters."""
squeezenet1_1_wide = partial(_squeezenet, name="squeezenet1_1_wide", filters=64, kernel=3, rows=SQUEEZENET_1_1_WIDE)
"""SqueezeNet 1.1 a third wider: with batch norm and simple bypass 1.29 million parameters at 34 classes."""
