"""AlexNet, the baseline of SqueezeNet's paper. Source: Krizhevsky, "One weird trick", 2014, without its local response
normalization, as in torchvision, whose names and 61,100,840 parameters at 1000 classes it has."""

from __future__ import annotations

from typing import Final

from core.graph import Graph
from core.models.options import Options, start

FEATURES: Final = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False),
                   (256, 3, 1, 1, True))  # fmt: skip
"""Filters, side, stride and padding of each convolution, and whether a pool follows."""
UNITS: Final = 4096


def alexnet(options: Options) -> Graph:
    """Five convolutions and three dense layers, which hold 19 of 20 weights."""
    b = start("alexnet", options)
    x, index = "photo", 0
    for filters, side, stride, padding, pooled in FEATURES:
        x = b.add("conv2d", f"features.{index}", x, filters=filters, kernel=(side, side), stride=(stride, stride),
                  padding=(padding,) * 4)  # fmt: skip
        x = b.add("relu", f"features.{index + 1}", x)
        if pooled:
            x = b.add("max_pool", f"features.{index + 2}", x, kernel=(3, 3), stride=(2, 2))
        index += 2 + pooled
    x = b.add("flatten", "flatten", x)
    for index in (1, 4):
        x = b.add("dropout", f"classifier.{index - 1}", x, rate=options.dropout)
        x = b.add("relu", f"classifier.{index + 1}", b.add("dense", f"classifier.{index}", x, units=UNITS))
    return b.graph(b.add("dense", "classifier.6", x, units=options.classes))
