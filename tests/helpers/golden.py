"""What PyTorch computed, as small files: results of every op and network to hold ours against.

Inputs and weights are formulas (`tests.helpers.noise`), so that the files hold only results, and of large arrays only a
digest. `tests/golden/make_ops.py` and `make_models.py` write them, with torch, in float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from core.device import Optimizer, PhotoBatch
from core.graph import Graph
from core.models import build
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from tests.helpers.noise import integers, noise, words
from tests.helpers.reference_plan import network_inputs

FOLDER = Path(__file__).parent.parent / "golden"
SAMPLES = 64

TRAINING: Mapping[str, dict] = {
    "squeezenet1_0": {"image_size": 64}, "squeezenet1_1": {"image_size": 96}, "squeezenet1_0_bn": {"image_size": 64},
    "squeezenet1_1_bn": {"image_size": 96}, "mobilenetv2": {"image_size": 96},
    "mobilenetv3_small": {"image_size": 96}, "mobilenetv3_large": {"image_size": 64},
    "cnn": {"image_size": 28, "channels": 1},
    "cnn_full": {"image_size": 28, "channels": 1, "padding": "full"}, "mlp": {"image_size": 28, "channels": 1},
    "mlp_sigmoid": {"image_size": 28, "channels": 1, "activation": "sigmoid"},
}  # fmt: skip
"""Networks with golden loss and gradients, and how they are built: 4 photos, 10 classes, no dropout."""

QUICK = {"squeezenet1_1", "squeezenet1_1_bn", "mobilenetv3_small", "cnn", "mlp"}
"""The networks of the inner loop: every kind of step once."""

TEN_LOSSES = ("squeezenet1_1",)
"""Networks whose first ten losses are recorded for every optimizer."""

DRAWS = {"squeezenet1_0": 41, "squeezenet1_1": 111, "squeezenet1_0_bn": 6, "squeezenet1_1_bn": 18}
"""Which draw of the weights of networks with many windows, found by trying: their pools and activations never choose
between values that float32 cannot tell apart. With the first draw two values of a window lay 1.6e-6 apart; which was
taken hung on the order of OpenBLAS' sums, with one thread or two, and moved gradients by 4e-3 of their largest."""

SIDES = {"relu": [1.5, -1.5], "relu6": [2.5, 3.5, -2.5, 3.0, 8.5], "hard_swish": [0.3, -0.4, 5.5, -5.5]}
"""Means of channels in front of an activation, away from its bends."""

OPTIMIZERS = {"sgd": (Optimizer("sgd", momentum=0.9, nesterov=True, weight_decay=1e-3), 2e-5)}
"""Optimizer and learning rate of the golden losses; torch is given the same, decaying only what we decay."""


@dataclass(frozen=True)
class Golden:
    """A network with weights and photos, and PyTorch's results.

    photos: uint8 ``(N, S, S, 3)``; gradients, updated: digests by full name (`assert_matches`);
    losses: by optimizer name, the loss before each of ten steps, float64; tolerance: of gradients in float32.
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
    tolerance: float = 1e-3

    def assert_gradients(self, gradients, relative=0.0):
        """Every gradient matches, to `relative` (default: what float32 allows this network).

        Some are 0 but for rounding, so that each is measured against 1e-5 of the largest gradient's norm at least.
        """
        floor = 1e-5 * max(wanted[1] for wanted in self.gradients.values())
        assert gradients.keys() == self.gradients.keys(), gradients.keys() ^ self.gradients.keys()
        for name, wanted in self.gradients.items():
            assert_matches(gradients[name], wanted, relative or self.tolerance, floor, name)

    @property
    def training_graph(self):
        return with_loss(self.graph, 0.0, ())

    def batch(self):
        size = self.photos.shape[1:3]
        return PhotoBatch(self.photos, identity_augmentation(len(self.photos), size, size), self.labels)

    def inputs(self, dtype=np.float32):
        """The photos as the network sees them: normalised, ``(N, S, S, channels)``."""
        return network_inputs(self.graph, self.batch()).astype(dtype)


def graph_of(name):
    """The network behind a golden name; what follows the model's name there is only a variant."""
    model = name if name.endswith("_bn") else name.removesuffix("_full")
    return build(model.removesuffix("_sigmoid"), 10, dropout=0.0, **TRAINING[name])


def weights_of(graph, draw=0):
    """Weights by formula, by full name, float32: spread as He, biases and statistics not trivial.

    Behind a batch norm, an activation is given channels that lie clearly on one side of its bends:
    a network of many layers multiplies rounding, and one flip would decide whether gradients agree.
    """
    weights = {}
    for node in graph.nodes:
        after = {user.op for user in graph.users(node.name)}
        for p in node.parameters:
            name = f"{node.name}.{p.role}"
            drawn = noise(f"{name} {draw}" if draw else name, p.shape)
            if p.init == "ones":
                drawn = 1 + drawn / 4
            elif p.role == "weight":
                drawn = drawn * (6 / p.fan_in) ** 0.5
            else:
                drawn = drawn / 8
            if node.op == "batch_norm" and after & SIDES.keys():
                sides = SIDES[min(after & SIDES.keys())]
                drawn = drawn / 2 if p.role == "weight" else drawn + np.resize(sides, p.shape) * (p.role == "bias")
            weights[name] = drawn.astype(np.float32)
    return weights


def photos_of(count, size):
    """uint8 ``(count, size, size, 3)``: patches of colour with a little grain, so that photos differ in the large."""
    patch = -(-size // 8)
    coarse = words("patches", count * 8 * 8 * 3).reshape(count, 8, 8, 3) >> np.uint32(24)
    coarse = coarse.repeat(patch, 1).repeat(patch, 2)[:, :size, :size]
    grain = words("grain", count * size * size * 3).reshape(count, size, size, 3) >> np.uint32(24)
    return ((3 * coarse + grain) // 4).astype(np.uint8)


def labels_of(count, classes):
    return integers("labels", count, 0, classes)


def each_network(names=TRAINING):
    """Parameters of a test: all but a few networks are left out of `make test-fast`."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in names]


def golden_training(name):
    """A small training run of a network: 10 classes, 4 photos, logits (inference), loss, gradients."""
    graph = graph_of(name)
    with np.load(FOLDER / "models.npz") as file:
        own = {key.removeprefix(f"{name}/"): file[key] for key in file.files if key.startswith(f"{name}/")}
    photos = photos_of(4, TRAINING[name]["image_size"])
    return Golden(graph, weights_of(graph, DRAWS.get(name, 0)), photos, labels_of(4, 10),
                  own["logits"], float(own["loss"]),
                  {key.removeprefix("gradient/"): a for key, a in own.items() if key.startswith("gradient/")},
                  {key.removeprefix("updated/"): a for key, a in own.items() if key.startswith("updated/")},
                  {key.removeprefix("losses/"): a for key, a in own.items() if key.startswith("losses/")},
                  1e-2 if name.startswith("mobilenet") else 1e-3)  # fmt: skip


def digest(array):
    """Largest magnitude, norm, a projection, and up to `SAMPLES` elements evenly strided: float64."""
    flat = np.asarray(array, np.float64).ravel()
    projection = flat @ noise("projection", flat.shape)
    stride = max(len(flat) // SAMPLES, 1)
    return np.array([np.abs(flat).max(initial=0), np.linalg.norm(flat), projection, *flat[::stride][:SAMPLES]])


def assert_matches(got, wanted, relative, floor=1e-30, name="array"):
    """An array agrees with a digest: elements to `relative` of the largest, norm and projection to that of the norm."""
    assert np.isfinite(got).all(), f"{name}: not all values are finite"
    found = digest(got)
    assert found.shape == wanted.shape, f"{found.shape[0]} numbers in the digest, wanted {wanted.shape[0]}"
    scale = np.full(len(wanted), max(wanted[0], floor))
    scale[1:3] = max(wanted[1], floor)
    error = np.abs(found - wanted) / scale
    assert error.max() <= relative, f"{name}: relative error {error.max():.2e} is above {relative:.0e}"
