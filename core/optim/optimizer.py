"""The optimizers on flat arrays, as PyTorch defines them: the reference of every device's update kernel.

Sources: Sutskever et al. 2013 (SGD with momentum), Kingma and Ba 2015 (Adam), Loshchilov and Hutter
2019 (AdamW). Weight decay joins the gradient, except with "adamw", which shrinks the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from core.config import RunConfig
from core.errors import ModelFileError
from core.ops.contract import Array, Arrays


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Settings of the update. clip_norm: 0 is off; average: decay of the running average of weights, 0 is none."""

    name: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    clip_norm: float = 0.0
    average: float = 0.0


def optimizer_of(config: RunConfig) -> Optimizer:
    settings = {f.name: getattr(config, f.name) for f in fields(Optimizer) if f.name != "name"}
    return Optimizer(config.optimizer, **settings)


@dataclass(frozen=True, slots=True)
class Scalars:
    """Values that change from step to step, computed on the host in float64; kernels get them as float32.

    rate: step size (with Adam's bias correction); root: factor on ``sqrt(second)`` (Adam); shrink:
    factor on decayed weights (AdamW); average: decay of the running average at this step.
    """

    rate: float
    root: float
    shrink: float
    average: float


def scalars(optimizer: Optimizer, learning_rate: float, step: int) -> Scalars:
    """Return the scalars of one step; the first step is 1.

    The running average starts with decay ``(1 + step) / (10 + step)``, so that it forgets the random
    first weights.
    """
    rule, average = RULES[optimizer.name], min(optimizer.average, (1 + step) / (10 + step))
    shrink = 1 - learning_rate * optimizer.weight_decay if rule.shrinks else 1.0
    if not rule.corrects:
        return Scalars(learning_rate, 1.0, shrink, average)
    rate = learning_rate / (1 - optimizer.beta1**step)
    return Scalars(rate, (1 - optimizer.beta2**step) ** -0.5, shrink, average)


def initial_state(optimizer: Optimizer, weights: Array) -> dict[str, Array]:
    """Return zero moments and, with a running average, "average", a copy of the weights."""
    state = {name: np.zeros_like(weights) for name in RULES[optimizer.name].moments}
    return state | ({"average": weights.copy()} if optimizer.average > 0 else {})


def check_state(state: Arrays, names: Iterable[str], size: int) -> None:
    """Raise ModelFileError unless a state from a file has these arrays of `size` numbers, and its step."""
    wrong, step = [name for name in names if np.shape(state.get(name, 0)) != (size,)], np.asarray(state.get("step"))
    if wrong or step.dtype.kind != "i" or step.ndim or step < 0:
        raise ModelFileError(f"The optimizer state in this checkpoint does not fit: {[*wrong, 'step'][0]!r} is not "
                             "there, or has another size or type. It belongs to other settings.")


def gradient_norm(gradient: Array) -> float:
    """Return the Euclidean norm over all trained parameters, summed in float64."""
    return float(np.sqrt(np.square(gradient, dtype=np.float64).sum()))


def clip_factor(optimizer: Optimizer, norm: float) -> float:
    """Return the factor that clips the gradient, at most 1; 1e-6 guards the division, as in PyTorch."""
    return min(1.0, optimizer.clip_norm / (norm + 1e-6)) if optimizer.clip_norm > 0 else 1.0


def update(
    optimizer: Optimizer, weights: Array, gradient: Array, state: Arrays, decayed: Array, learning_rate: float,
    step: int,
) -> tuple[Array, dict[str, Array]]:  # fmt: skip
    """Return new weights and state after one step, all flat, in the dtype of `weights`.

    decayed: bool, where weight decay applies (`core.program.ParameterLayout.decayed`); step: from 1.
    """
    now = scalars(optimizer, learning_rate, step)
    g = gradient * weights.dtype.type(clip_factor(optimizer, gradient_norm(gradient)))
    if RULES[optimizer.name].shrinks:
        weights = np.where(decayed, weights * weights.dtype.type(now.shrink), weights)
    else:
        g = np.where(decayed, g + weights.dtype.type(optimizer.weight_decay) * weights, g)
    new, moved = RULES[optimizer.name].move(optimizer, g, state, now)
    weights = weights - weights.dtype.type(now.rate) * moved
    if optimizer.average > 0:
        decay = weights.dtype.type(now.average)
        new["average"] = decay * state["average"] + (1 - decay) * weights
    return weights, new


def _sgd(optimizer: Optimizer, g: Array, state: Mapping[str, Array], now: Scalars) -> tuple[dict[str, Array], Array]:
    momentum = g.dtype.type(optimizer.momentum)
    buffer = momentum * state["momentum"] + g
    return {"momentum": buffer}, g + momentum * buffer if optimizer.nesterov else buffer


def _adam(optimizer: Optimizer, g: Array, state: Mapping[str, Array], now: Scalars) -> tuple[dict[str, Array], Array]:
    kind = g.dtype.type
    first = kind(optimizer.beta1) * state["first"] + kind(1 - optimizer.beta1) * g
    second = kind(optimizer.beta2) * state["second"] + kind(1 - optimizer.beta2) * g * g
    return {"first": first, "second": second}, first / (np.sqrt(second) * kind(now.root) + kind(optimizer.epsilon))


@dataclass(frozen=True, slots=True)
class Rule:
    """One optimizer. move: new moments and direction; moments: names of its arrays, flat like the trained weights;
    corrects: with Adam's bias corrections; shrinks: weight decay shrinks the weights; rate_power: the learning rate
    follows the batch size to this power."""

    move: Callable[[Optimizer, Array, Mapping[str, Array], Scalars], tuple[dict[str, Array], Array]]
    moments: tuple[str, ...] = ("first", "second")
    corrects: bool = True
    shrinks: bool = False
    rate_power: float = 0.5


RULES: Final[Mapping[str, Rule]] = {
    "sgd": Rule(_sgd, ("momentum",), corrects=False, rate_power=1.0), "adam": Rule(_adam),
    "adamw": Rule(_adam, shrinks=True),
}
