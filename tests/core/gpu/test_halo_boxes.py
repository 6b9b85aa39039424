"""The input gradient of a fire by boxes of rows, run as plain Python against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from core.gpu import hopper_convolution, hopper_rows
from core.gpu.compiler import compile_kernel
from core.gpu.kernels import halo_boxes
from core.gpu.kernels.halo_boxes import HaloBoxes
from core.gpu.launch import Tensor
from core.gpu.resources import assemble, assembler_log
from tests.helpers.emulated_boxes import Boxes
from tests.helpers.emulated_gpu import Memory
from tests.helpers.gpu_network import relative

SHAPES = (
    (2, 5, 9, 16, HaloBoxes(16, 32, 2, 11, 3, 1, 1, 3)),
    (1, 11, 15, 24, HaloBoxes(24, 64, 1, 16, 7, 2, 1, 4)),
    (3, 4, 6, 16, HaloBoxes(16, 32, 3, 7, 4, 1, 2, 5)),
)
"""Photos, height, width, channels of x and the block's work."""


def to_bf16(values):
    """(float64, bits) of the bf16 below in size."""
    bits = np.asarray(values, np.float32).view(np.uint32) >> 16
    return (bits << 16).view(np.float32).astype(np.float64), bits.astype(np.uint16)


def gradient(dy, three, one):
    """dx in float64 of both halves of a fire, the 1x1 half's channels first."""
    filters = len(one)
    (_, h, w, _), wide = dy.shape, np.pad(dy[..., filters:], ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = (wide[:, ky : ky + h, kx : kx + w] @ three[:, 2 - ky, 2 - kx] for ky in range(3) for kx in range(3))
    return sum(taps) + dy[..., :filters] @ one[:, 0, 0]


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_run_as_plain_python_gives_the_references_gradient(shape, late, monkeypatch):
    batch, height, width, channels, work = shape
    filters, draw = work.line * work.blocks, np.random.default_rng(height)
    dy, dy_bits = to_bf16(draw.normal(size=(batch, height, width, 2 * filters)))
    three, three_bits = to_bf16(draw.normal(size=(filters, 3, 3, channels)))
    one, one_bits = to_bf16(draw.normal(size=(filters, 1, 1, channels)))
    x, x_bits = to_bf16(draw.normal(size=(batch, height, width, channels)))
    places = [np.arange(three.size).reshape(three.shape), three.size + np.arange(one.size).reshape(one.shape)]
    packed = hopper_convolution.pack_parts(places, 2 * work.line, True)
    memory = Memory(1 << 22)
    machine = Boxes(memory, late)
    machine.patch(monkeypatch, halo_boxes)

    def put(array):
        at = memory.reserve(array.nbytes)
        memory.put(at, array)
        return at

    flat = np.concatenate([three_bits.reshape(-1), one_bits.reshape(-1)])
    given = Tensor(put(dy_bits) + 2 * filters, height, width, filters, 2 * filters, 2)
    out = np.full((batch, height, width, channels + 8), 0xFFFF, np.uint16)
    at = put(out)
    dx = Tensor(at, height, width, channels, channels + 8, 2)
    mask = Tensor(put(x_bits), height, width, channels, channels, 2)
    launch = hopper_rows.halo_boxes("", batch, given, dx, put(flat[packed]), mask, "relu", False, filters, work)
    machine.run(launch)
    got = memory.get(at, out.size, np.uint16).reshape(out.shape)
    assert (got[..., channels:] == 0xFFFF).all()
    values = (got[..., :channels].astype(np.uint32) << 16).view(np.float32)
    assert relative(values, gradient(dy, three, one) * (x > 0)) < 4e-3


@pytest.mark.parametrize("work", [HaloBoxes(64, 32, 8, 28, 9, 2, 2, 4), HaloBoxes(32, 32, 4, 55, 9, 4, 2, 4)], ids=str)
def test_products_overlap_and_sums_stay_in_registers(work):
    filters = work.line * work.blocks
    dy, dx = Tensor(2 * filters, 54, 54, filters, 2 * filters, 2), Tensor(0, 54, 54, work.columns, work.columns, 2)
    launch = hopper_rows.halo_boxes("", 256, dy, dx, 0, dx, "relu", False, filters, work)
    ptx, _ = compile_kernel(launch.recipe, (9, 0))
    assert ".local" not in ptx
    assert "Potential Performance Loss" not in assembler_log(ptx, "sm_90a")
    resources = assemble(ptx, (9, 0))
    assert (resources.stack, resources.spills) == (0, 0)
