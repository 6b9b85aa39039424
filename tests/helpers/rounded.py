"""The references as mixed precision computes them: every value and gradient rounded to bf16 where it is stored."""

from dataclasses import replace

import numpy as np

from core.ops import network
from core.ops.op_table import LOSSES, OPS

EXACT = *LOSSES, "global_avg_pool"
"""Ops whose output stays in float32: scores and the loss."""
NOISE = 1e-6
"""Of every value before it is rounded: as much as another order of float32 sums gives."""


def to_bits(array):
    """The bits of bf16, rounded to nearest, ties to even."""
    words = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16)


def of_bits(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16(array):
    """Rounded to nearest, ties to even, as float64."""
    return of_bits(to_bits(array)).astype(np.float64)


def cut_to_bf16(values):
    """The nearest bf16 below in size, as float64 and as the 16 bits of each."""
    bits = (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return of_bits(bits).astype(np.float64), bits


def rounded_gradient(graph, weights, photos, labels, mode, targets, monkeypatch, seed=0):
    """`loss_and_gradients` in float64 with bf16 between the steps, and noise by the seed before each rounding."""
    draw = np.random.default_rng(seed)
    with monkeypatch.context() as patch:
        patch.setattr(network, "OPS", {name: _rounded(op, draw) for name, op in OPS.items()})
        return network.loss_and_gradients(graph, weights, bf16(photos), labels, mode, targets)


def _rounded(op, draw):
    def stored(array):
        return bf16(array * (1 + NOISE * draw.standard_normal(array.shape)))

    def factors(parameters):
        return {role: bf16(a) if role == "weight" and a.ndim > 1 else a for role, a in parameters.items()}

    def forward(attributes, inputs, parameters, mode):
        got = op.forward(attributes, inputs, factors(parameters), mode)
        return got if op.name in EXACT else replace(got, output=stored(got.output))

    def backward(attributes, inputs, parameters, result, gradient, mode):
        got = op.backward(attributes, inputs, factors(parameters), result, gradient, mode)
        if op.name in LOSSES:
            return got
        return replace(got, inputs=tuple(None if part is None else stored(part) for part in got.inputs))

    return replace(op, forward=forward, backward=backward)
