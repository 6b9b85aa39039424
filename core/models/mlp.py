"""The multilayer perceptron: every pixel to 500 units to the classes."""

from __future__ import annotations

from typing import Final

from core.graph import Graph
from core.models.options import Options, start

UNITS: Final = 500


def mlp(options: Options) -> Graph:
    """Flatten, dense 500 with ReLU or sigmoid, dense classes."""
    b = start("mlp", options, activations=("relu", "sigmoid"))
    x = b.add("flatten", "flatten", "photo")
    init = "glorot_uniform" if options.activation == "sigmoid" else "he_uniform"
    x = b.add("dense", "dense1", x, units=UNITS, init=init)
    x = b.add(options.activation, "activation", x)
    return b.graph(b.add("dense", "dense2", x, units=options.classes, init="glorot_uniform"))
