"""Initial weights. Each parameter has its own random stream, seeded by its name.

Sources: He et al. 2015 (he), Glorot and Bengio 2010 (glorot).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from core.graph import Graph, Parameter
from core.ops.contract import Array

Init: TypeAlias = Callable[[np.random.Generator, Parameter], Array]


def _fan_out(parameter: Parameter) -> int:
    """Return the fan-out, not divided by groups, as in PyTorch."""
    return parameter.size // parameter.shape[-1]


def _uniform(rng: np.random.Generator, parameter: Parameter, bound: float) -> Array:
    return rng.uniform(-bound, bound, parameter.shape)


INITS: Final[Mapping[str, Init]] = {
    "zeros": lambda rng, p: np.zeros(p.shape),
    "ones": lambda rng, p: np.ones(p.shape),
    "he_uniform": lambda rng, p: _uniform(rng, p, (6 / p.fan_in) ** 0.5),
    "he_normal": lambda rng, p: rng.normal(0, (2 / p.fan_in) ** 0.5, p.shape),
    "he_normal_out": lambda rng, p: rng.normal(0, (2 / _fan_out(p)) ** 0.5, p.shape),
    "glorot_uniform": lambda rng, p: _uniform(rng, p, (6 / (p.fan_in + _fan_out(p))) ** 0.5),
    "normal_0.01": lambda rng, p: rng.normal(0, 0.01, p.shape),
}


def initial_weights(graph: Graph, seed: int) -> dict[str, Array]:
    """Return float32 arrays by full name; a parameter's values do not depend on other parameters."""
    weights = {}
    for name, parameter in graph.parameters().items():
        if parameter.init not in INITS:
            raise ValueError(f"There is no initialisation {parameter.init!r} for {name}.")
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], np.uint32)
        rng = np.random.default_rng([seed, *(int(w) for w in words)])
        weights[name] = INITS[parameter.init](rng, parameter).astype(np.float32)
    return weights
