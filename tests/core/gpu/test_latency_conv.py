"""The small-batch convolutions, run as plain Python launch by launch, on odd shapes and with poisoned outputs."""

import numpy as np
import pytest

from core.gpu.latency.block import BlockShape
from core.gpu.latency.candidates import conv_launch, fire_launch
from core.gpu.launch import Tensor
from core.gpu.ops.conv.operands import Taps, pack_forward, taps_of
from core.ops.window import Window
from tests.helpers.emulated_gpu import Machine, Memory
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
