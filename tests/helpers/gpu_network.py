"""Random weights and batches for whole networks, on the GPU and elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from core.device import Optimizer, PhotoBatch
from core.gpu.hardware import typical
from core.models.architectures import build
from core.ops.builder import Builder, with_loss
from core.ops.photo import identity_augmentation
from core.program import fold_batch_norm, fold_weights

AMPERE = replace(typical(), capability=(8, 0))
"""A GPU of the size of an H200 that has no kernels of its own."""


def open_hopper():
    """The device; skips the test where its compute capability is not 9.0."""
    from core.gpu.driver.device import open_device

    device = open_device()
    if device.capability != (9, 0):
        pytest.skip("a GPU of compute capability 9.0 alone runs it")
    return device


def random_weights(graph, seed=0):
    """He-sized weights; statistics and scales around 1, so that nothing is hidden by zeros."""
    draw = np.random.default_rng(seed)
    weights = {}
    for name, p in graph.parameters().items():
        if p.role == "running_var" or (p.role == "weight" and len(p.shape) == 1):
            values = draw.uniform(0.5, 1.5, p.shape)
        elif len(p.shape) == 1:
            values = draw.normal(0, 0.1, p.shape)
        else:
            values = draw.normal(0, (2 / max(p.fan_in, 1)) ** 0.5, p.shape)
        weights[name] = values.astype(np.float32)
    return weights


def batch_for(graph, count, seed=1, side=80):
    draw = np.random.default_rng(seed)
    height, width, _ = graph.photo_shape
    photos = draw.integers(0, 256, (count, side, side + 6, 3), dtype=np.uint8)
    augmentation = identity_augmentation(count, (side, side + 6), (height, width))
    augmentation[0, 18:20] = (0.1, 1.5)
    augmentation[1:2, 20:24] = (3, 4, 12, 15)  # of a second photo
    augmentation[1:2, 6], augmentation[1:2, 8] = 0.8, 0.1
    return PhotoBatch(photos, augmentation, draw.integers(0, graph.classes, count).astype(np.int32))


def make_plan(name, precision="float32", training=True, batch=6, dropout=0.5, **more):
    """(network, its graph in the plan, plan on the GPU with `random_weights`) of a small size."""
    from core.gpu.plan import CudaPlan

    side, classes = (28, 10) if name in ("cnn", "mlp") else (64, 5)
    base = build(name, classes, side, dropout=dropout)
    graph = with_loss(base, 0.1, ()) if training else fold_batch_norm(base)
    plan = CudaPlan(graph, batch=batch, training=training, precision=precision, seed=3, **more)
    plan.load(random_weights(base) if training else fold_weights(base, random_weights(base)))
    return base, graph, plan


def gradients_and_logits(network, batch, weights, precision="float32"):
    """(loss, gradients, logits) of a step and a prediction on the GPU."""
    from core.gpu.plan import CudaPlan

    given = {"batch": len(batch.labels), "precision": precision, "optimizer": Optimizer()}
    trained = CudaPlan(with_loss(network, 0.1, ()), training=True, **given)
    trained.load(weights)
    loss, gradients = trained.gradient(batch).loss, trained.gradients()
    trained.close()
    shown = CudaPlan(fold_batch_norm(network), training=False, **given)
    shown.load(weights)
    logits = shown.predict(batch)["logits"]
    shown.close()
    return loss, gradients, logits


def relative(got, wanted):
    """Norm of the difference over the norm of what is wanted; NaN never passes."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert np.isfinite(got).all()
    return float(np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), 1e-30))


def rare_network(side=30):
    """Average pools of both rules, convolutions in groups (of the photo too), and a softmax amid the layers."""
    b = Builder("rare", (side, side, 3), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    x = b.add("conv2d", "first", "photo", filters=18, kernel=(3, 3), padding=(1, 1, 1, 1), groups=3)
    x = b.add("relu", "first_relu", x)
    x = b.add("avg_pool", "mean_inside", x, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 0, 1), ceil_mode=True,
              count_include_pad=False)
    x = b.add("conv2d", "halves", x, filters=32, kernel=(3, 3), padding=(1, 1, 1, 1), groups=2)
    x = b.add("softmax", "shares", x)
    x = b.add("conv2d", "strided", x, filters=32, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1), groups=4)
    x = b.add("relu6", "strided_relu", x)
    x = b.add("avg_pool", "mean", x, kernel=(3, 2), stride=(1, 2), padding=(1, 1, 1, 0))
    x = b.add("conv2d", "logits", x, filters=8, kernel=(1, 1), groups=2)
    return b.graph(b.add("global_avg_pool", "pool", x))


def flattened_network():
    """A dropout, an activation and a sum of a flattened image that has more than one pixel."""
    b = Builder("flattened", (12, 12, 3), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    x = b.add("conv2d", "maps", "photo", filters=16, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    x = b.add("flatten", "flat", b.add("relu", "maps_relu", x))
    kept = b.add("dropout", "kept", x, rate=0.5)
    x = b.add("add", "sum", kept, b.add("sigmoid", "gate", x))
    return b.graph(b.add("dense", "logits", x, units=8))
