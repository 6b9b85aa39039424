"""Squeeze and excitation, a block of MobileNetV3, convolutions in groups and by depth: launches as plain Python."""

import numpy as np
import pytest

from core.ops.builder import Builder, with_loss
from tests.helpers.emulated_network import PHOTOS, REAL, Lowered, exact, references
from tests.helpers.gpu_network import relative


def excite(b, x, channels):
    s = b.add("global_avg_pool", "squeeze", x)
    s = b.add("relu", "reduced", b.add("dense", "reduce", s, units=8))
    s = b.add("hard_sigmoid", "gate", b.add("dense", "widen", s, units=channels))
    return b.add("multiply", "scale", x, s)


def excited(b):
    x = b.add("relu", "first", b.add("conv2d", "stem", "photo", filters=16, kernel=(1, 1)))
    return b.add("hard_swish", "last", excite(b, x, 16))


def block(b):
    x = b.add("relu", "first", b.add("conv2d", "stem", "photo", filters=16, kernel=(1, 1)))
    y = b.add("conv2d", "expand", x, filters=24, bias=False)
    y = b.add("hard_swish", "wide", b.add("batch_norm", "wide_norm", y))
    y = b.add("depthwise_conv2d", "filter", y, kernel=(5, 5), padding=(2,) * 4, bias=False)
    y = excite(b, b.add("relu", "filtered", b.add("batch_norm", "filter_norm", y)), 24)
    y = b.add("batch_norm", "narrow_norm", b.add("conv2d", "project", y, filters=16, bias=False))
    return b.add("silu", "last", b.add("add", "sum", x, y))


def in_groups(b):
    """Two slices of one group: bias, and a gradient that is masked and added to that of the sum."""
    x = b.add("relu", "first", b.add("conv2d", "stem", "photo", filters=32, kernel=(1, 1)))
    y = b.add("conv2d", "groups", x, filters=32, kernel=(1, 2), padding=(0, 1, 0, 0), groups=2)
    return b.add("silu", "last", b.add("add", "sum", x, y))


def depthwise(b):
    """Strips, whose input gradient is masked and added to that of the sum."""
    x = b.add("relu", "first", b.add("conv2d", "stem", "photo", filters=16, kernel=(1, 1)))
    y = b.add("depthwise_conv2d", "filter", x, padding=(1,) * 4)
    return b.add("silu", "last", b.add("add", "sum", x, y))


@pytest.mark.parametrize(
    ("build", "precision"),
    [(excited, "mixed"), (in_groups, "mixed"), (depthwise, "mixed"), (depthwise, "float32"),
     pytest.param(block, "mixed", marks=pytest.mark.slow)],
)  # fmt: skip
def test_each_gradient_of_a_chain_of_steps_is_the_reference(build, precision):
    b, draw = Builder("small", (4, 5, 3), (0.5,) * 3, (0.5,) * 3), np.random.default_rng(3)
    end = b.add("dense", "classes", b.add("global_avg_pool", "pool", build(b)), units=4)
    graph = with_loss(b.graph(end), 0.0, ())
    lowered = Lowered(graph, precision)
    names = [name for name in lowered.steps if name not in ("stem", "pool", "classes")][:-1]
    weights = {n: exact(draw.normal(0, 0.5, p.shape), 2) for n, p in graph.parameters().items()}
    weights |= {n: exact(draw.uniform(0.5, 1.5, w.shape), 2) for n, w in weights.items() if n.endswith("norm.weight")}
    lowered.put_weights(weights)
    first, last = lowered.steps["stem"].output, lowered.steps["last"].output
    x = np.maximum(exact(draw.normal(0.3, 2, (PHOTOS, *first.shape)), 2), 0)
    g = exact(draw.normal(0, 1, (PHOTOS, *last.shape)), 2)
    g[REAL:] = 0  # as the loss leaves it
    lowered.put(first, x)
    lowered.run(True, names)
    lowered.put(last, g, gradient=True)
    lowered.run(False, names)
    values, gradients = ({at.buffer: array[:REAL].astype(np.float64)} for at, array in ((first, x), (last, g)))
    _, parameters = references(lowered, weights, names, values, gradients)
    assert relative(lowered.get(last).reshape(REAL, *last.shape), values[last.buffer]) < 1e-2
    for name, wanted in parameters.items():
        assert relative(lowered.gradient(name), wanted) < 3e-2, name
    assert relative(lowered.get(first, True), gradients[first.buffer] * (values[first.buffer] > 0)) < 2e-2
