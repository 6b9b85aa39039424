"""The small network of the convolution lessons: two layers of eight 5x5 filters, made for 28x28 digits."""

from __future__ import annotations

from typing import Final

from core.graph import Graph
from core.models.options import Options, start
from core.ops.window import full_padding, same_padding

FILTERS: Final = 8
KERNEL: Final = (5, 5)
UNITS: Final = 128
PADDINGS: Final = {"same": same_padding(KERNEL), "full": full_padding(KERNEL), "valid": (0, 0, 0, 0)}
"""Rows and columns added above, left, below and right: the output keeps its size, grows by 4, or shrinks by 4."""


def cnn(options: Options) -> Graph:
    """Convolution, convolution, pool, dense 128, dense classes."""
    b = start("cnn", options, paddings=tuple(PADDINGS))
    padding = PADDINGS[options.padding]
    x = b.add("conv2d", "conv1", "photo", filters=FILTERS, kernel=KERNEL, padding=padding)
    x = b.add("relu", "relu1", x)
    x = b.add("conv2d", "conv2", x, filters=FILTERS, kernel=KERNEL, padding=padding)
    x = b.add("relu", "relu2", x)
    x = b.add("max_pool", "pool", x, kernel=(2, 2), stride=(2, 2))
    x = b.add("flatten", "flatten", x)
    x = b.add("dense", "dense1", x, units=UNITS)
    x = b.add("relu", "relu3", x)
    x = b.add("dropout", "dropout", x, rate=options.dropout)
    return b.graph(b.add("dense", "dense2", x, units=options.classes, init="glorot_uniform"))
