"""The input gradient of a fire by TMA tiles of rows, run as plain Python against the reference."""

import numpy as np
import pytest

from core.gpu.launch import Target, Tensor
from core.gpu.sm90 import halo, halo_tma
from core.gpu.sm90.filters import pack_vectors
from core.gpu.sm90.halo_tma import HaloShape
from tests.helpers.emulated_gpu import Memory
from tests.helpers.emulated_tma import TmaMachine
from tests.helpers.gpu_machine import GpuMachine, Output, results
from tests.helpers.gpu_network import relative
from tests.helpers.rounded import cut_to_bf16, of_bits

SHAPES = (
    (2, 5, 9, 16, HaloShape(16, 32, 2, 11, 3, 1, 1, 3)), (1, 11, 15, 24, HaloShape(24, 64, 1, 16, 7, 2, 1, 4)),
    (3, 4, 6, 16, HaloShape(16, 32, 3, 7, 4, 1, 2, 5)), (1, 9, 20, 16, HaloShape(16, 32, 2, 21, 9, 1, 3, 2)),
)
"""Images, height, width, channels of x and the block's work."""

POISON = 0xFFFF
"""A NaN in bf16, as bits."""
BESIDE = 8
"""Channels after a pixel's own."""


def gradient(dy, three, one):
    """dx in float64 of both halves of a fire, the 1x1 half's channels first."""
    filters = len(one)
    (_, h, w, _), wide = dy.shape, np.pad(dy[..., filters:], ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = (wide[:, ky : ky + h, kx : kx + w] @ three[:, 2 - ky, 2 - kx] for ky in range(3) for kx in range(3))
    return sum(taps) + dy[..., :filters] @ one[:, 0, 0]


def problem(batch, height, width, channels, work):
    """(bits of dy, of the packed filters and of the input, wanted gradient behind the input's ReLU)."""
    filters, draw = work.channels * work.blocks, np.random.default_rng(height)
    dy, dy_bits = cut_to_bf16(draw.normal(size=(batch, height, width, 2 * filters)))
    three, three_bits = cut_to_bf16(draw.normal(size=(filters, 3, 3, channels)))
    one, one_bits = cut_to_bf16(draw.normal(size=(filters, 1, 1, channels)))
    x, x_bits = cut_to_bf16(draw.normal(size=(batch, height, width, channels)))
    places = [np.arange(three.size).reshape(three.shape), three.size + np.arange(one.size).reshape(one.shape)]
    packed = pack_vectors(places, 2 * work.channels, True)
    flat = np.concatenate([three_bits.reshape(-1), one_bits.reshape(-1)])
    return dy_bits, flat[packed], x_bits, gradient(dy, three, one) * (x > 0)


def launch_of(dy, dx, weight, mask, shape):
    """The launch on arrays at these addresses; dx is a slice of pixels with BESIDE channels more."""
    batch, height, width, channels, work = shape
    filters = work.channels * work.blocks
    given = Tensor(dy + 2 * filters, height, width, filters, 2 * filters, 2)
    out = Tensor(dx, height, width, channels, channels + BESIDE, 2)
    seen = Tensor(mask, height, width, channels, channels, 2)
    return halo.fire_launch("", batch, given, out, weight, Target(seen, "relu"), work)


def check(machine, shape):
    (batch, height, width, channels, _), (*arrays, wanted) = shape, problem(*shape)
    dy, filters, mask = map(machine.memory.place, arrays)
    dx = Output(machine.memory, (batch, height, width, channels + BESIDE))
    (bits,) = results(machine, launch_of(dy, dx.address, filters, mask, shape), dx)
    assert (bits[..., channels:] == POISON).all()
    assert relative(of_bits(bits[..., :channels]), wanted) < 4e-3, shape


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_run_as_plain_python_gives_the_references_gradient(shape, late, monkeypatch):
    machine = TmaMachine(Memory(1 << 22), late)
    machine.patch(monkeypatch, halo_tma)
    check(machine, shape)


ON_A_GPU = (
    (3, 27, 27, 64, HaloShape(64, 32, 8, 28, 9, 2, 2, 3)), (2, 53, 54, 16, HaloShape(16, 64, 1, 55, 4, 2, 2, 4)),
    (9, 13, 13, 64, HaloShape(64, 64, 4, 14, 13, 3, 1, 3)), (5, 26, 27, 48, HaloShape(48, 32, 6, 28, 9, 2, 2, 4)),
    (70, 5, 9, 24, HaloShape(24, 32, 1, 11, 3, 1, 1, 4)),
)


@pytest.mark.gpu
def test_the_kernel_writes_the_references_gradient_and_the_same_bits_twice():
    machine = GpuMachine([launch_of(0, 0, 0, 0, shape) for shape in ON_A_GPU])
    for shape in ON_A_GPU:
        check(machine, shape)
        machine.free()


WORKS = (HaloShape(16, 64, 1, 55, 4, 2, 2, 4), HaloShape(64, 32, 8, 28, 9, 2, 2, 3))


@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize(("size", "suits"), [
    ((54, 54), True), ((27, 27), True), ((79, 79), True), ((13, 20), False), ((7, 300), False), ((1, 1), False),
])  # fmt: skip
def test_a_fitted_shape_has_whole_rows_of_its_images(work, size, suits):
    fitted = work.fitted(*size)
    assert fitted.rows * fitted.pitch <= fitted.pixels
    assert fitted.rows <= size[0]
    assert fitted.suits(*size) == suits
