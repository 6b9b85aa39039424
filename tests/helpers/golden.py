"""What PyTorch computed, as small files: results of every op and network to hold ours against.

Inputs and weights are formulas (`tests.helpers.noise`), so that the files hold only results, and of
large arrays only a digest. `tests/golden/make_ops.py` and `make_models.py` write them, with torch,
in float64.

    golden = golden_training("squeezenet1_0")
    plan.load(golden.weights)
    result = plan.gradient(golden.batch())
    for name, gradient in plan.gradients().items():
        assert_matches(gradient, golden.gradients[name], 1e-3)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.device import Optimizer, PhotoBatch
from core.graph import Graph
from core.models import build
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.ops.photo import identity_rows, transform
from tests.helpers.noise import integers, noise, words

FOLDER = Path(__file__).parent.parent / "golden"
SAMPLES = 64

LOGITS = ("squeezenet1_0", "squeezenet1_1", "mobilenetv2")
"""Networks with golden logits at 224 pixels, 1000 classes, 2 photos."""

TRAINING: Mapping[str, dict] = {
    "squeezenet1_0": {"image_size": 96},
    "squeezenet1_1": {"image_size": 96},
    "squeezenet1_0_bn": {"image_size": 64},
    "squeezenet1_1_bn": {"image_size": 64},
    "mobilenetv2": {"image_size": 64},
    "mobilenetv2_tensorflow": {"image_size": 64, "padding": "tensorflow"},
    "cnn": {"image_size": 28, "channels": 1},
    "cnn_full": {"image_size": 28, "channels": 1, "padding": "full"},
    "mlp": {"image_size": 28, "channels": 1},
    "mlp_sigmoid": {"image_size": 28, "channels": 1, "activation": "sigmoid"},
}
"""Networks with golden loss, gradients and ten losses, and how they are built: 4 photos, 10 classes, no dropout."""

OPTIMIZERS = {
    "sgd": (Optimizer("sgd", momentum=0.9, nesterov=True, weight_decay=1e-3), 0.002),
    "adam": (Optimizer("adam", weight_decay=1e-3), 0.0005),
    "adamw": (Optimizer("adamw", weight_decay=1e-2), 0.0005),
}
"""Optimizer and learning rate of the golden losses; torch is given the same, decaying only what we decay."""


@dataclass(frozen=True)
class Golden:
    """A network with weights and photos, and PyTorch's results.

    photos: uint8 ``(N, S, S, 3)``; gradients, updated: digests by full name (`assert_matches`);
    losses: by optimizer name, the loss before each of ten steps, float64.
    """

    graph: Graph
    weights: Mapping[str, Array]
    photos: Array
    labels: Array
    logits: Array
    loss: float = 0.0
    gradients: Mapping[str, Array] | None = None
    updated: Mapping[str, Array] | None = None
    losses: Mapping[str, Array] | None = None

    @property
    def training_graph(self):
        return with_loss(self.graph, 0.0, ())

    def batch(self):
        """The photos as a plan takes them."""
        size = self.photos.shape[1:3]
        return PhotoBatch(self.photos, identity_rows(len(self.photos), size, size), self.labels)

    def inputs(self, dtype=np.float32):
        """The photos as the network sees them: normalised, ``(N, S, S, channels)``."""
        photo = self.graph.nodes[0]
        size = self.photos.shape[1:3]
        rows = identity_rows(len(self.photos), size, size)
        return transform(self.photos, rows, size, photo.attributes["mean"], photo.attributes["std"]).astype(dtype)


def graph_of(name, classes=10, **options):
    """The network behind a golden name; what follows the model's name there is only a variant."""
    model = name if name.endswith("_bn") else name.removesuffix("_tensorflow").removesuffix("_full")
    return build(model.removesuffix("_sigmoid"), classes, dropout=0.0, **options)


def weights_of(graph):
    """Weights by formula, by full name, float32: spread as He, biases and statistics not trivial."""
    weights = {}
    for name, p in graph.parameters().items():
        drawn = noise(name, p.shape)
        if p.role == "weight" and p.init != "ones":
            drawn = drawn * (6 / p.fan_in) ** 0.5
        elif p.init == "ones":
            drawn = 1 + drawn / 4
        else:
            drawn = drawn / 8
        weights[name] = drawn.astype(np.float32)
    return weights


def photos_of(count, size):
    """uint8 ``(count, size, size, 3)``."""
    return (words("photos", count * size * size * 3) >> np.uint32(24)).astype(np.uint8).reshape(count, size, size, 3)


def labels_of(count, classes):
    """int32 ``(count,)``."""
    return integers("labels", count, 0, classes)


def golden_logits(name):
    """A network of 1000 classes at 224 pixels, with the logits of 2 photos."""
    graph = graph_of(name, 1000)
    with np.load(FOLDER / "models.npz") as file:
        logits = file[f"{name}/logits224"]
    return Golden(graph, weights_of(graph), photos_of(2, 224), labels_of(2, 1000), logits)


def golden_training(name):
    """A small training run of a network: 10 classes, 4 photos, logits (inference), loss, gradients, ten losses."""
    options = TRAINING[name]
    graph = graph_of(name, **options)
    with np.load(FOLDER / "models.npz") as file:
        own = {key.removeprefix(f"{name}/"): file[key] for key in file.files if key.startswith(f"{name}/")}
    return Golden(
        graph,
        weights_of(graph),
        photos_of(4, options["image_size"]),
        labels_of(4, 10),
        own["logits"],
        float(own["loss"]),
        {key.removeprefix("gradient/"): a for key, a in own.items() if key.startswith("gradient/")},
        {key.removeprefix("updated/"): a for key, a in own.items() if key.startswith("updated/")},
        {key.removeprefix("losses/"): a for key, a in own.items() if key.startswith("losses/")},
    )


def digest(array):
    """Largest magnitude, norm, a projection, and up to `SAMPLES` elements evenly strided: float64."""
    flat = np.asarray(array, np.float64).ravel()
    projection = flat @ noise("projection", flat.shape)
    stride = max(len(flat) // SAMPLES, 1)
    return np.array([np.abs(flat).max(initial=0), np.linalg.norm(flat), projection, *flat[::stride][:SAMPLES]])


def assert_matches(got, wanted, relative):
    """An array agrees with a digest: elements to `relative` of the largest, norm and projection to that of the norm."""
    assert np.isfinite(got).all(), "not all values are finite"
    found = digest(got)
    assert found.shape == wanted.shape, f"{found.shape[0]} numbers in the digest, wanted {wanted.shape[0]}"
    scale = np.full(len(wanted), max(wanted[0], 1e-30))
    scale[1:3] = max(wanted[1], 1e-30)
    error = np.abs(found - wanted) / scale
    assert error.max() <= relative, f"relative error {error.max():.2e} at {error.argmax()} is above {relative:.0e}"
