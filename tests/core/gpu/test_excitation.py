"""Squeeze and excitation: the launches of its steps, run as plain Python one after another."""

from __future__ import annotations

import numpy as np

from core.ops.activation import ACTIVATIONS
from core.ops.builder import Builder, with_loss
from core.ops.contract import Mode
from core.ops.op_table import OPS
from tests.helpers.emulated_network import PHOTOS, REAL, Lowered, exact
from tests.helpers.gpu_network import relative

NAMES = ("squeeze", "reduce", "expand", "gate", "scale", "after")
"""Steps that run; the convolution before them only gives them their input."""


def excited(channels=16):
    b = Builder("small", (4, 5, 3), (0.5,) * 3, (0.5,) * 3)
    x = b.add("relu", "first", b.add("conv2d", "stem", "photo", filters=channels, kernel=(1, 1)))
    s = b.add("global_avg_pool", "squeeze", x)
    s = b.add("relu", "reduced", b.add("dense", "reduce", s, units=8))
    s = b.add("hard_sigmoid", "gate", b.add("dense", "expand", s, units=channels))
    x = b.add("hard_swish", "after", b.add("multiply", "scale", x, s))
    return with_loss(b.graph(b.add("dense", "classes", b.add("global_avg_pool", "pool", x), units=4)), 0.0, ())


def test_squeeze_and_excitation_is_the_reference_forward_and_backward():
    graph, draw = excited(), np.random.default_rng(3)
    lowered = Lowered(graph, "mixed")
    weights = {n: exact(draw.normal(0, 0.5, p.shape), 2) for n, p in graph.parameters().items()}
    lowered.put_weights(weights)
    first, last = lowered.steps["stem"].output, lowered.steps["after"].output
    x = np.maximum(exact(draw.normal(0.3, 2, (PHOTOS, *first.shape)), 2), 0)
    g = exact(draw.normal(0, 1, (PHOTOS, *last.shape)), 2)
    g[REAL:] = 0  # as the loss leaves it
    lowered.put(first, x)
    lowered.run(True, NAMES)
    lowered.put(last, g, gradient=True)
    lowered.run(False, NAMES)
    values, results = {first.buffer: x[:REAL].astype(np.float64)}, {}
    for name in NAMES:
        step = lowered.steps[name]
        inputs = [values[v.buffer] for v in step.inputs]
        owned = {p.role: weights[f"{name}.{p.role}"].astype(np.float64) for p in step.parameters}
        results[name] = (step, inputs, owned, OPS[step.op].forward(step.attributes, inputs, owned, Mode()))
        value = results[name][3].output
        values[step.output.buffer] = ACTIVATIONS[step.activation].value(value) if step.activation else value
    assert relative(lowered.get(last).reshape(REAL, *last.shape), values[last.buffer]) < 1e-2
    gradients = {last.buffer: g[:REAL].astype(np.float64)}
    for name in reversed(NAMES):
        step, inputs, owned, result = results[name]
        dy = gradients[step.output.buffer]
        dy = ACTIVATIONS[step.activation].gradient(dy, values[step.output.buffer]) if step.activation else dy
        back = OPS[step.op].backward(step.attributes, inputs, owned, result, dy, Mode())
        for role, wanted in back.parameters.items():
            assert relative(lowered.gradient(f"{name}.{role}"), wanted) < 2e-2, (name, role)
        for value, gradient in zip(step.inputs, back.inputs, strict=True):
            gradients[value.buffer] = gradients.get(value.buffer, 0) + gradient
    wanted = gradients[first.buffer] * (values[first.buffer] > 0)
    assert relative(lowered.get(first, True), wanted) < 2e-2
