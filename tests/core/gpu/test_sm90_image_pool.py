"""The image's convolution with its max pool on Hopper, forward and backward, run as plain Python on small integers."""

import numpy as np
import pytest

from core.gpu.hardware import typical
from core.gpu.sm90 import image_pool, image_pool_gradient
from core.graph import PHOTO
from core.ops.builder import Builder, with_loss
from core.ops.contract import Call, Mode
from core.ops.op_table import OPS
from core.program import Value
from tests.helpers.emulated_network import PHOTOS, REAL, Lowered
from tests.helpers.emulated_tma import TmaMachine

MODE = Mode(training=True)


@pytest.mark.parametrize(
    ("kernel", "filters", "side"), [(3, 32, (15, 23)), pytest.param(7, 96, (27, 33), marks=pytest.mark.slow)]
)
def test_the_pool_and_the_gradients_are_the_references(kernel, filters, side, monkeypatch):
    b = Builder("small", (*side, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("relu", "relu", b.add("conv2d", "stem", PHOTO, filters=filters, kernel=(kernel, kernel), stride=(2, 2)))
    x = b.add("global_avg_pool", "mean", b.add("max_pool", "pool", x, kernel=(3, 3), stride=(2, 2)))
    graph = with_loss(b.graph(b.add("dense", "classes", x, units=4)), 0.0, ())
    network = Lowered(graph, "mixed", processors=2, hardware=typical())
    network.machine = TmaMachine(network.memory, True)
    for module in (image_pool, image_pool_gradient):
        network.machine.patch(monkeypatch, module)
    draw, (stem, pool) = np.random.default_rng(kernel), (network.steps[name] for name in ("stem", "pool"))
    weights = {name: draw.integers(-1, 2, p.shape).astype(np.float32) for name, p in graph.parameters().items()}
    photo = draw.integers(-1, 2, (PHOTOS, *side, 3)).astype(np.float64)
    dy = draw.integers(-2, 3, (PHOTOS, *pool.output.shape)).astype(np.float64)
    network.put_weights(weights)
    image = Value(PHOTO, (*side, 3))
    network.put(image, np.pad(photo, ((0, 0), (0, 0), (0, network.frame.tensor(image).width - side[1]), (0, 0))))
    network.put(pool.output, dy, gradient=True)
    network.run(True, ["stem"])
    network.run(False, ["stem"])
    assert [n.recipe.factory for n in network.frame.launches if n.layer in ("stem", "pool")] == [
        "make_image_pool", "make_image_gradient", "make_reduction"
    ]  # fmt: skip

    owned = {role: weights[f"stem.{role}"] for role in ("weight", "bias")}
    between = OPS["conv2d"].forward(filtering := Call(stem.attributes, [photo], owned, MODE))
    positive = np.maximum(between.output, 0)
    pooled = OPS["max_pool"].forward(pooling := Call(pool.attributes, [positive], mode=MODE))
    assert np.array_equal(network.get(pool.output), pooled.output[:REAL])
    back = OPS["max_pool"].backward(pooling, pooled, dy).inputs[0]
    exact = OPS["conv2d"].backward(filtering, between, back * (positive > 0))
    for role in ("weight", "bias"):
        assert np.array_equal(network.gradient(f"stem.{role}"), exact.parameters[role]), role
