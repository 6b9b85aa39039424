"""Networks without branches: the multilayer perceptron, a small convolutional network, and AlexNet."""

from __future__ import annotations

from typing import Final

from core.graph import Graph
from core.models.options import Options, start

MLP_UNITS: Final = 500
CNN_FILTERS: Final = 8
CNN_KERNEL: Final = (5, 5)
CNN_UNITS: Final = 128
PADDINGS: Final = {"same": (2, 2, 2, 2), "full": (4, 4, 4, 4), "valid": (0, 0, 0, 0)}
"""Padding above, left, below and right: the output keeps its size, grows by 4, or shrinks by 4."""
ALEXNET_FEATURES: Final = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False),
                           (256, 3, 1, 1, True))  # fmt: skip
"""Filters, side, stride and padding of each convolution, and whether a pool follows."""
ALEXNET_UNITS: Final = 4096


def mlp(options: Options) -> Graph:
    b = start("mlp", options, activations=("relu", "sigmoid"))
    x = b.add("flatten", "flatten", "photo")
    init = "glorot_uniform" if options.activation == "sigmoid" else "he_uniform"
    x = b.add("dense", "dense1", x, units=MLP_UNITS, init=init)
    x = b.add(options.activation, "activation", x)
    return b.graph(b.add("dense", "dense2", x, units=options.classes, init="glorot_uniform"))


def cnn(options: Options) -> Graph:
    """Two convolutions of eight 5x5 filters, pool, dense 128, dense classes: made for 28x28 digits."""
    b = start("cnn", options, paddings=tuple(PADDINGS))
    padding = PADDINGS[options.padding]
    x = b.add("conv2d", "conv1", "photo", filters=CNN_FILTERS, kernel=CNN_KERNEL, padding=padding)
    x = b.add("relu", "relu1", x)
    x = b.add("conv2d", "conv2", x, filters=CNN_FILTERS, kernel=CNN_KERNEL, padding=padding)
    x = b.add("relu", "relu2", x)
    x = b.add("max_pool", "pool", x, kernel=(2, 2), stride=(2, 2))
    x = b.add("flatten", "flatten", x)
    x = b.add("dense", "dense1", x, units=CNN_UNITS)
    x = b.add("relu", "relu3", x)
    x = b.add("dropout", "dropout", x, rate=options.dropout)
    return b.graph(b.add("dense", "dense2", x, units=options.classes, init="glorot_uniform"))


def alexnet(options: Options) -> Graph:
    """AlexNet, the baseline of SqueezeNet's paper: five convolutions, and three dense layers with 19 of 20 weights.

    Source: Krizhevsky, "One weird trick", 2014, without its local response normalization, as in torchvision. Names are
    those of torchvision's state dict, 61,100,840 parameters at 1000 classes.
    """
    b = start("alexnet", options)
    x, index = "photo", 0
    for filters, side, stride, padding, pooled in ALEXNET_FEATURES:
        x = b.add("conv2d", f"features.{index}", x, filters=filters, kernel=(side, side), stride=(stride, stride),
                  padding=(padding,) * 4)  # fmt: skip
        x = b.add("relu", f"features.{index + 1}", x)
        if pooled:
            x = b.add("max_pool", f"features.{index + 2}", x, kernel=(3, 3), stride=(2, 2))
        index += 2 + pooled
    x = b.add("flatten", "flatten", x)
    for index in (1, 4):
        x = b.add("dropout", f"classifier.{index - 1}", x, rate=options.dropout)
        x = b.add("relu", f"classifier.{index + 1}", b.add("dense", f"classifier.{index}", x, units=ALEXNET_UNITS))
    return b.graph(b.add("dense", "classifier.6", x, units=options.classes))
