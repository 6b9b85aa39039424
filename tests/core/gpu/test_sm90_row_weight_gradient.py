"""The weight gradient by TMA tiles of rows, run as plain Python against the reference; and on a GPU."""

import numpy as np
import pytest

from core.gpu.hardware import typical
from core.gpu.launch import Tensor
from core.gpu.sm90 import halo, row_weight_gradient
from core.gpu.sm90.row_weight_gradient import RowShape
from tests.core.gpu.test_lowering import frame_of
from tests.helpers.compare import relative_error
from tests.helpers.emulated_gpu import Memory
from tests.helpers.emulated_tma import TmaMachine
from tests.helpers.gpu_machine import GpuMachine, Output, results
from tests.helpers.rounded import cut_to_bf16


def gradients(x, dy):
    """(dweight OHWI, dbias) in float64."""
    (_, h, w, _), wide = x.shape, np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [[np.einsum("nyxf,nyxc->fc", dy, wide[:, ky : ky + h, kx : kx + w]) for kx in range(3)] for ky in range(3)]
    return np.transpose(taps, (2, 0, 1, 3)), dy.sum((0, 1, 2))


def problem(batch, height, width, channels, filters, before):
    """bf16 x and dy as float64 and as bits; dy's pixels have `before` channels of something else before and after."""
    draw = np.random.default_rng(height * 100 + width)
    x, x_bits = cut_to_bf16(draw.normal(size=(batch, height, width, channels)))
    whole, dy_bits = cut_to_bf16(draw.normal(size=(batch, height, width, filters + 2 * before)))
    return x, x_bits, whole[..., before : before + filters], dy_bits


SHAPES = (
    (1, 11, 7, 64, RowShape(16, 16, 8, 2, 2)), (3, 5, 9, 64, RowShape(48, 16, 11, 3, 3)),
    (2, 4, 6, 128, RowShape(32, 32, 7, 3, 2)), (2, 2, 15, 64, RowShape(48, 64, 16, 1, 2)),
)
"""Images, height, width, filters and the block's work."""


def launch_of(x, dy, partial, batch, height, width, filters, shape, processors=132):
    """The launch on arrays at these addresses, as `problem` makes them with 8 channels before."""
    source = Tensor(x, height, width, shape.channels, shape.channels, 2)
    gradient = Tensor(dy + 16, height, width, filters, filters + 16, 2)
    return halo.rows_launch("", batch, source, gradient, partial, shape, processors)


def check(machine, shape, processors, limit):
    batch, height, width, filters, work = shape
    x, x_bits, dy, dy_bits = problem(batch, height, width, work.channels, filters, 8)
    given = machine.memory.place(x_bits), machine.memory.place(dy_bits)
    splits, size = launch_of(*given, 0, *shape, processors).grid[0], filters * (9 * work.channels + 1)
    partial = Output(machine.memory, (splits, size), np.float32)
    (got,) = results(machine, launch_of(*given, partial.address, *shape, processors), partial)
    weight, bias = gradients(x, dy)
    assert relative_error(got.sum(0, dtype=np.float64), np.concatenate([weight.reshape(-1), bias])) < limit, shape


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_run_as_plain_python_gives_the_references_gradients(shape, late, monkeypatch):
    machine = TmaMachine(Memory(1 << 22), late)
    machine.patch(monkeypatch, row_weight_gradient)
    check(machine, shape, 2, 1e-6)


ON_A_GPU = (
    (3, 27, 27, 256, RowShape(64, 64, 28, 4, 3)), (5, 26, 27, 192, RowShape(48, 16, 29, 3, 3)),
    (5, 26, 27, 192, RowShape(48, 64, 28, 5, 2)), (2, 55, 54, 64, RowShape(16, 16, 55, 3, 4)),
    (9, 13, 13, 256, RowShape(64, 64, 14, 13, 4)), (2, 31, 40, 128, RowShape(32, 32, 41, 2, 3)),
    (1, 7, 9, 64, RowShape(80, 16, 10, 3, 4)), (200, 1, 1, 64, RowShape(16, 16, 2, 1, 2)),
)  # fmt: skip


@pytest.mark.gpu
def test_the_kernel_writes_the_references_gradients_and_the_same_bits_twice():
    machine = GpuMachine([launch_of(0, 0, 0, *shape) for shape in ON_A_GPU])
    for shape in ON_A_GPU:
        check(machine, shape, 132, 1e-5)
        machine.free()


@pytest.mark.parametrize(("batch", "count"), [(256, 8), (128, 8), (32, 0)])
def test_a_network_takes_it_at_large_batches(batch, count):
    launches = frame_of("squeezenet1_0", batch=batch, size=224, hardware=typical()).launches
    assert sum(launch.recipe.factory == "make_row_weight_gradient" for launch in launches) == count
