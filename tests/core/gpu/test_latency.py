"""The small-batch kernels, launch by launch as plain Python: convolutions on odd shapes, and a whole prediction."""

import numpy as np
import pytest

from core.gpu.latency.block import BlockShape
from core.gpu.latency.candidates import conv_launch, fire_launch
from core.gpu.launch import Tensor
from core.gpu.ops.conv.operands import Taps, pack_forward, taps_of
from core.graph import PHOTO
from core.ops.builder import Builder
from core.ops.window import Window
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.emulated_network import Lowered, put_photo
from tests.helpers.gpu_network import AMPERE, random_weights
from tests.helpers.rounded import bf16, of_bits, to_bits

POINT, NEAR = Window((1, 1), (1, 1), (0, 0, 0, 0)), Window((3, 3), (1, 1), (1, 1, 1, 1))
STRIDED = Window((3, 3), (2, 2), (1, 1, 1, 1))
POISON = 0xFFFF


def windows(x, window):
    """(tap, pixels of it) for every tap."""
    (top, left, bottom, right), (sy, sx), (kh, kw) = window.padding, window.stride, window.kernel
    ho, wo = window.output(*x.shape[1:3])
    x = np.pad(x, ((0, 0), (top, bottom + sy), (left, right + sx), (0, 0)))
    for ky, kx in np.ndindex(kh, kw):
        yield (ky, kx), x[:, ky : ky + sy * (ho - 1) + 1 : sy, kx : kx + sx * (wo - 1) + 1 : sx]


class Arrays:
    """Random operands in an emulated memory; the channels between two pixels are poison."""

    def __init__(self, seed=3):
        self.draw, self.memory = np.random.default_rng(seed), Memory(1 << 20)

    def image(self, batch, height, width, channels, beyond):
        """A tensor, and its values; those of the padding up to 8 channels are zero."""
        padded = -(-channels // 8) * 8
        values = self.draw.normal(size=(batch, height, width, channels))
        raw = np.full((batch, height, width, padded + beyond), POISON, np.uint16)
        raw[..., :padded], raw[..., :channels] = 0, to_bits(values)
        at = self.memory.place(raw)
        return Tensor(at, height, width, channels, padded + beyond, 2), bf16(values)

    def filters(self, filters, kernel, channels, taps):
        values = self.draw.normal(size=(filters, *kernel, channels)) / (kernel[0] * kernel[1] * channels) ** 0.5
        places = pack_forward(np.arange(values.size).reshape(values.shape), taps, 2)
        packed = to_bits(np.where(places < 0, 0, values.reshape(-1)[places.clip(0)]))
        return self.memory.place(packed), bf16(values)

    def bias(self, count):
        values = self.draw.normal(size=count).astype(np.float32)
        return self.memory.place(np.append(values, np.zeros(16, np.float32))), values  # multiples of 16 floats


CASES = {
    "two photos, 1x1": (2, (3, 5), 40, 24, POINT, (1, 2, 1, 2), "relu6", False, 0),
    "sum behind, ragged columns": (1, (5, 5), 64, 20, POINT, (2, 2, 1, 1), "", True, 0),
    "3x3, ragged chunks": (1, (4, 5), 16, 24, NEAR, (1, 1, 2, 3), "relu", False, 0),
    "both halves of a fire": (1, (5, 4), 8, 48, NEAR, (1, 2, 1, 2), "relu", False, 16),
    "strided, sum behind": (1, (5, 4), 24, 10, STRIDED, (1, 2, 2, 2), "relu", True, 0),
    "more warps than one part each": (1, (3, 3), 72, 40, POINT, (1, 1, 1, 4), "", True, 0),
}
"""Photos, height and width, channels, filters, window, block, activation, a sum behind, the fire's 1x1 filters."""


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_small_batch_convolution_is_its_reference(name):
    batch, side, channels, filters, window, numbers, activation, added, ones = CASES[name]
    a = Arrays()
    x, seen = a.image(batch, *side, channels, 8)
    taps, (ho, wo) = taps_of(x, window, False), window.output(*side)
    weight, w = a.filters(filters - ones, window.kernel, channels, taps)
    bias, b = a.bias(filters - ones)
    wanted = sum(part @ w[:, ky, kx].T for (ky, kx), part in windows(seen, window)) + b
    other = None
    if ones:
        first, w1 = a.filters(ones, (1, 1), channels, Taps((1, 1), taps.channels))
        bias1, b1 = a.bias(ones)
        wanted = np.concatenate([seen @ w1[:, 0, 0].T + b1, wanted], -1)
    if added:
        other, more = a.image(batch, ho, wo, filters, 0)
        wanted = wanted + more
    wanted = np.clip(wanted, 0 if activation else None, 6 if activation == "relu6" else None)
    padded = -(-filters // 8) * 8
    out = Tensor(a.memory.reserve(2 * batch * ho * wo * (padded + 16)), ho, wo, filters, padded + 16, 2)
    block = BlockShape(*numbers)
    Machine(a.memory).run(
        fire_launch("layer", batch, x, out, taps, weight, bias, first, bias1, ones, activation, block) if ones else
        conv_launch("layer", batch, x, out, window, taps, weight, bias, activation, block, other)
    )  # fmt: skip
    got = a.memory.get(out.address, batch * ho * wo * out.pitch, np.uint16).reshape(batch, ho, wo, out.pitch)
    assert (got[..., padded:] == POISON).all()
    assert np.abs(of_bits(got[..., :filters]) - wanted).max() < 4e-3 * np.abs(wanted).max()


PHOTOS, SIDE, CLASSES = 2, (9, 11), 19
POOL = Window((3, 3), (2, 2), (0, 0, 0, 1))
"""Its last windows hang over; beyond the edge is nothing larger than 0."""


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
