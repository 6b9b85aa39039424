"""Both gradients of a fire by TMA tiles of rows, run as plain Python against the reference; and on a GPU."""

import numpy as np
import pytest

from core.gpu.hardware import typical
from core.gpu.launch import Target, Tensor
from core.gpu.sm90 import halo, halo_tma, row_weight_gradient
from core.gpu.sm90.filters import pack_vectors
from core.gpu.sm90.halo_tma import HaloShape
from core.gpu.sm90.row_weight_gradient import RowShape
from tests.core.gpu.test_lowering import frame_of
from tests.helpers.compare import relative_error
from tests.helpers.emulated_gpu import Memory
from tests.helpers.emulated_tma import TmaMachine
from tests.helpers.gpu_machine import GpuMachine, Output, results
from tests.helpers.gpu_network import relative
from tests.helpers.rounded import cut_to_bf16, of_bits

POISON = 0xFFFF
"""A NaN in bf16, as bits."""
BESIDE = 8
"""Channels beside a pixel's own: after those of dx, before and after those of dy."""


def input_gradient(dy, three, one):
    """dx in float64 of both halves of a fire, the 1x1 half's channels first."""
    filters = len(one)
    (_, h, w, _), wide = dy.shape, np.pad(dy[..., filters:], ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = (wide[:, ky : ky + h, kx : kx + w] @ three[:, 2 - ky, 2 - kx] for ky in range(3) for kx in range(3))
    return sum(taps) + dy[..., :filters] @ one[:, 0, 0]


def input_problem(batch, height, width, channels, work):
    """(bits of dy, of the packed filters and of the input, wanted gradient behind the input's ReLU)."""
    filters, draw = work.channels * work.blocks, np.random.default_rng(height)
    dy, dy_bits = cut_to_bf16(draw.normal(size=(batch, height, width, 2 * filters)))
    three, three_bits = cut_to_bf16(draw.normal(size=(filters, 3, 3, channels)))
    one, one_bits = cut_to_bf16(draw.normal(size=(filters, 1, 1, channels)))
    x, x_bits = cut_to_bf16(draw.normal(size=(batch, height, width, channels)))
    places = [np.arange(three.size).reshape(three.shape), three.size + np.arange(one.size).reshape(one.shape)]
    packed = pack_vectors(places, 2 * work.channels, True)
    flat = np.concatenate([three_bits.reshape(-1), one_bits.reshape(-1)])
    return dy_bits, flat[packed], x_bits, input_gradient(dy, three, one) * (x > 0)


def input_launch(shape, dy=0, dx=0, weight=0, mask=0):
    """The launch on arrays at these addresses; dx is a slice of pixels with BESIDE channels more."""
    batch, height, width, channels, work = shape
    filters = work.channels * work.blocks
    given = Tensor(dy + 2 * filters, height, width, filters, 2 * filters, 2)
    out = Tensor(dx, height, width, channels, channels + BESIDE, 2)
    seen = Tensor(mask, height, width, channels, channels, 2)
    return halo.fire_launch("", batch, given, out, weight, Target(seen, "relu"), work)


def check_input(machine, shape):
    (batch, height, width, channels, _), (*arrays, wanted) = shape, input_problem(*shape)
    dy, filters, mask = map(machine.memory.place, arrays)
    dx = Output(machine.memory, (batch, height, width, channels + BESIDE))
    (bits,) = results(machine, input_launch(shape, dy, dx.address, filters, mask), dx)
    assert (bits[..., channels:] == POISON).all()
    assert relative(of_bits(bits[..., :channels]), wanted) < 4e-3, shape


def weight_gradient(x, dy):
    """dweight OHWI and dbias in float64, one behind the other."""
    (_, h, w, _), wide = x.shape, np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [[np.einsum("nyxf,nyxc->fc", dy, wide[:, ky : ky + h, kx : kx + w]) for kx in range(3)] for ky in range(3)]
    return np.concatenate([np.transpose(taps, (2, 0, 1, 3)).reshape(-1), dy.sum((0, 1, 2))])


def weight_launch(shape, x=0, dy=0, partial=0, processors=132):
    """The launch on arrays at these addresses; pixels of dy have BESIDE channels before and after."""
    batch, height, width, filters, work = shape
    source = Tensor(x, height, width, work.channels, work.channels, 2)
    gradient = Tensor(dy + 2 * BESIDE, height, width, filters, filters + 2 * BESIDE, 2)
    return halo.rows_launch("", batch, source, gradient, partial, work, processors)


def check_weight(machine, shape):
    batch, height, width, filters, work = shape
    processors, limit = (132, 1e-5) if isinstance(machine, GpuMachine) else (2, 1e-6)
    draw = np.random.default_rng(height * 100 + width)
    x, x_bits = cut_to_bf16(draw.normal(size=(batch, height, width, work.channels)))
    dy, dy_bits = cut_to_bf16(draw.normal(size=(batch, height, width, filters + 2 * BESIDE)))
    given = machine.memory.place(x_bits), machine.memory.place(dy_bits)
    splits, size = weight_launch(shape, *given, 0, processors).grid[0], filters * (9 * work.channels + 1)
    partial = Output(machine.memory, (splits, size), np.float32)
    (got,) = results(machine, weight_launch(shape, *given, partial.address, processors), partial)
    wanted = weight_gradient(x, dy[..., BESIDE:-BESIDE])
    assert relative_error(got.sum(0, dtype=np.float64), wanted) < limit, shape


CASES = [
    *((check_input, shape) for shape in (
        (2, 5, 9, 16, HaloShape(16, 32, 2, 11, 3, 1, 1, 3)), (1, 11, 15, 24, HaloShape(24, 64, 1, 16, 7, 2, 1, 4)),
        (3, 4, 6, 16, HaloShape(16, 32, 3, 7, 4, 1, 2, 5)), (1, 9, 20, 16, HaloShape(16, 32, 2, 21, 9, 1, 3, 2)))),
    *((check_weight, shape) for shape in (
        (1, 11, 7, 64, RowShape(16, 16, 8, 2, 2)), (3, 5, 9, 64, RowShape(48, 16, 11, 3, 3)),
        (2, 4, 6, 128, RowShape(32, 32, 7, 3, 2)), (2, 2, 15, 64, RowShape(48, 64, 16, 1, 2)))),
]  # fmt: skip
"""Images, height, width, channels of x or filters, and the block's work."""


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize(("check", "shape"), CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_kernel_run_as_plain_python_gives_the_references_gradient(check, shape, late, monkeypatch):
    machine = TmaMachine(Memory(1 << 22), late)
    for module in (halo_tma, row_weight_gradient):
        machine.patch(monkeypatch, module)
    check(machine, shape)


ON_A_GPU = {
    "input": (input_launch, check_input, (
        (3, 27, 27, 64, HaloShape(64, 32, 8, 28, 9, 2, 2, 3)), (2, 53, 54, 16, HaloShape(16, 64, 1, 55, 4, 2, 2, 4)),
        (9, 13, 13, 64, HaloShape(64, 64, 4, 14, 13, 3, 1, 3)), (5, 26, 27, 48, HaloShape(48, 32, 6, 28, 9, 2, 2, 4)),
        (70, 5, 9, 24, HaloShape(24, 32, 1, 11, 3, 1, 1, 4)))),
    "weight": (weight_launch, check_weight, (
        (3, 27, 27, 256, RowShape(64, 64, 28, 4, 3)), (5, 26, 27, 192, RowShape(48, 16, 29, 3, 3)),
        (5, 26, 27, 192, RowShape(48, 64, 28, 5, 2)), (2, 55, 54, 64, RowShape(16, 16, 55, 3, 4)),
        (9, 13, 13, 256, RowShape(64, 64, 14, 13, 4)), (2, 31, 40, 128, RowShape(32, 32, 41, 2, 3)),
        (1, 7, 9, 64, RowShape(80, 16, 10, 3, 4)), (200, 1, 1, 64, RowShape(16, 16, 2, 1, 2)))),
}  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ON_A_GPU)
def test_a_kernel_writes_the_references_gradient_and_the_same_bits_twice(kind):
    launch, check, shapes = ON_A_GPU[kind]
    machine = GpuMachine([launch(shape) for shape in shapes])
    for shape in shapes:
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


@pytest.mark.parametrize(("batch", "count"), [(256, 8), (128, 8), (32, 0)])
def test_a_network_takes_the_weight_gradient_by_rows_at_large_batches(batch, count):
    launches = frame_of("squeezenet1_0", batch=batch, size=224, hardware=typical()).launches
    assert sum(launch.recipe.factory == "make_row_weight_gradient" for launch in launches) == count
