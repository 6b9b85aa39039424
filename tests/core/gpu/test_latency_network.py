"""A prediction whose steps are one launch where they can be, launch by launch as plain Python, against NumPy."""

import numpy as np
import pytest

from core.graph import PHOTO
from core.ops.builder import Builder
from core.ops.window import Window
from tests.core.gpu.test_latency_conv import NEAR, POINT, windows
from tests.helpers.emulated_network import Lowered, put_photo
from tests.helpers.gpu_network import AMPERE, random_weights
from tests.helpers.rounded import bf16, to_bits

PHOTOS, SIDE, CLASSES = 2, (9, 11), 19
POOL, STRIDED = Window((3, 3), (2, 2), (0, 0, 0, 1)), Window((3, 3), (2, 2), (1, 1, 1, 1))
"""The pool's last windows hang over; beyond the edge is nothing larger than 0."""


def network(stride):
    b = Builder("small", (*SIDE, 3), (0.5,) * 3, (0.25,) * 3)

    def layer(op, name, x, activation, **attributes):
        x = b.add(op, name, x, **attributes)
        return b.add(activation, f"{name} out", x) if activation else x

    near = {"kernel": (3, 3), "padding": (1,) * 4}
    x = layer("conv2d", "first", PHOTO, "relu6", filters=16, stride=(2, 2), **near)
    y = layer("conv2d", "expand", x, "relu6", filters=48)
    y = layer("depthwise_conv2d", "deep", y, "relu6", stride=(stride,) * 2, **near)
    y = layer("conv2d", "project", y, "", filters=16)
    x = b.add("relu", "sum out", b.add("add", "sum", x, y)) if stride == 1 else b.add("relu", "no sum", y)
    x = b.add("max_pool", "pool", x, kernel=(3, 3), stride=(2, 2), ceil_mode=True) if stride == 1 else x
    x = layer("conv2d", "squeeze", x, "relu", filters=24)
    x = layer("depthwise_conv2d", "deep alone", x, "relu6", stride=(2, 2), **near)
    x = layer("conv2d", "last", x, "relu6", filters=48)
    return b.graph(b.add("dense", "classes", b.add("global_avg_pool", "mean", x), units=CLASSES))


def reference(weights, photo, stride):

    def layer(name, x, window, activation, deep=False):
        w, total = bf16(weights[f"{name}.weight"]), weights[f"{name}.bias"].astype(np.float64)
        for (ky, kx), part in windows(x, window):
            total = total + (part * w[:, ky, kx, 0] if deep else part @ w[:, ky, kx].T)
        return np.clip(total, 0 if activation else None, 6 if activation == "relu6" else None)

    x = bf16(layer("first", photo, STRIDED, "relu6"))
    y = bf16(layer("expand", x, POINT, "relu6"))
    y = bf16(layer("deep", y, NEAR if stride == 1 else STRIDED, "relu6", True))
    y = layer("project", y, POINT, "")
    x = bf16(np.maximum(y + x if stride == 1 else y, 0))
    x = np.maximum.reduce([part for _, part in windows(x, POOL)]) if stride == 1 else x
    x = bf16(layer("squeeze", x, POINT, "relu"))
    x = bf16(layer("deep alone", x, STRIDED, "relu6", True))
    x = bf16(layer("last", x, POINT, "relu6"))
    return x.mean((1, 2)) @ bf16(weights["classes.weight"]).reshape(CLASSES, -1).T + weights["classes.bias"]


@pytest.mark.parametrize("stride", [1, 2])
def test_steps_in_one_launch_compute_what_they_do_apart(stride):
    graph = network(stride)
    weights, photo = random_weights(graph), bf16(np.random.default_rng(0).normal(size=(PHOTOS, *SIDE, 3)))
    lowered = Lowered(graph, "mixed", AMPERE.processors, False, PHOTOS, True, kept=frozenset([PHOTO]))
    frame, memory = lowered.frame, lowered.memory
    assert [n.layer for n in frame.launches] == [
        PHOTO, "first", "deep", "project", *(["pool"] if stride == 1 else []), "squeeze", "deep alone", "last", "mean",
        "classes", "logits",
    ]  # fmt: skip
    lowered.put_weights(weights, to_bits)
    put_photo(frame, memory, photo, to_bits)
    for launch in frame.launches[1:]:
        lowered.machine.run(launch)
    got = memory.get(frame.block("logits"), PHOTOS * CLASSES, np.float32).reshape(PHOTOS, CLASSES)
    wanted = reference(weights, photo, stride)
    assert np.abs(got - wanted).max() < 4e-3 * np.abs(wanted).max()  # a sum may round to the other neighbour in bf16
