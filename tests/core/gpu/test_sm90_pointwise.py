"""1x1 convolutions by TMA without a GPU: run as plain Python, copies and products as early or late as allowed."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.compiler import Recipe, compile_kernel
from core.gpu.explain import frame_for
from core.gpu.hardware import typical
from core.gpu.launch import Tensor, blocks_of
from core.gpu.parts.tile import Tile
from core.gpu.select import BACKWARD, FORWARD, Case
from core.gpu.sm90 import pointwise, pointwise_forward, pointwise_gradients
from core.gpu.sm90.filters import pack_vectors
from core.models.architectures import build
from core.ops.builder import with_loss
from core.program import lower
from tests.core.gpu.test_lowering import frame_of
from tests.core.gpu.test_sm90_pointwise_gpu import BESIDE, launches
from tests.helpers.emulated_gpu import Memory
from tests.helpers.emulated_tma import TmaMachine
from tests.helpers.gpu_network import AMPERE, relative
from tests.helpers.resources import assemble, assembler_log
from tests.helpers.rounded import cut_to_bf16, of_bits


def bf16(draw, *shape, relu=False):
    """(values, bits) of random bf16."""
    x = draw.normal(size=shape).astype(np.float32)
    return cut_to_bf16(np.maximum(x, 0) if relu else x)


@pytest.fixture(params=[False, True], ids=["early", "late"])
def machine(request, monkeypatch):
    """The machine and a function that puts an array into its memory."""
    memory = Memory(1 << 22)
    made = TmaMachine(memory, request.param)
    for module in (pointwise_forward, pointwise_gradients):
        made.patch(monkeypatch, module)
    return made, memory.place


def sliced(put, bits):
    """(tensor of a slice of channels, address and shape of what it lies in), other channels poisoned."""
    pixels, channels = bits.shape
    wide = np.full((pixels, channels + 2 * BESIDE), 0xFFFF, np.uint16)
    wide[:, BESIDE:-BESIDE] = bits
    at = put(wide)
    return Tensor(at + 2 * BESIDE, 1, pixels, channels, channels + 2 * BESIDE, 2), at, wide.shape


def packed(put, places, bits):
    return put(np.append(bits.reshape(-1), np.uint16(0))[places.reshape(-1)])


def delivered(machine, at, shape):
    """The slice's bits; nothing was written beside it."""
    wide = machine.memory.get(at, int(np.prod(shape)), np.uint16).reshape(shape)
    assert (wide[:, :BESIDE] == 0xFFFF).all()
    assert (wide[:, -BESIDE:] == 0xFFFF).all()
    return wide[:, BESIDE:-BESIDE]


@pytest.mark.parametrize(("pixels", "channels", "filters", "tile"), [
    (70, 8, 16, Tile(64, 16, 16, 2, 4, 1, 1)), (500, 136, 24, Tile(128, 24, 272, 3, 8, 1, 1)),
    (330, 40, 128, Tile(128, 64, 80, 2, 8, 1, 1)),
])  # fmt: skip
def test_the_forward_product(pixels, channels, filters, tile, machine):
    made, put = machine
    draw = np.random.default_rng(pixels)
    (x, x_bits), (w, w_bits) = bf16(draw, pixels, channels), bf16(draw, filters, 1, 1, channels)
    bias = draw.normal(size=filters).astype(np.float32)
    places = pack_vectors([np.arange(w.size).reshape(w.shape)], 16 * pointwise_forward.vectors_of(tile))
    given, _, _ = sliced(put, x_bits)
    out, at, shape = sliced(put, np.full((pixels, filters), 0xFFFF, np.uint16))
    made.run(pointwise.forward_launch("", 1, given, out, packed(put, places, w_bits), put(bias), "relu", tile, 2))
    assert relative(of_bits(delivered(made, at, shape)), np.maximum(x @ w[:, 0, 0].T + bias, 0)) < 4e-3


@pytest.mark.parametrize(("pixels", "channels", "filters", "tile", "masking"), [
    (70, 64, 16, Tile(64, 64, 32, 2, 4, 1, 1), "relu"), (70, 64, 16, Tile(64, 64, 32, 2, 4, 1, 1), ""),
    (400, 200, 40, Tile(64, 128, 80, 2, 8, 1, 1), "relu"),
])  # fmt: skip
def test_both_gradients(pixels, channels, filters, tile, masking, machine):
    made, put = machine
    draw = np.random.default_rng(pixels)
    (x, x_bits), (dy, dy_bits) = bf16(draw, pixels, channels, relu=True), bf16(draw, pixels, filters)
    w, w_bits = bf16(draw, filters, 1, 1, channels)
    columns, size = blocks_of(channels, tile.columns) * tile.columns, filters * channels + filters
    vectors = pointwise_gradients.vectors_of(tile)
    places = pack_vectors([np.arange(w.size).reshape(w.shape)], 16 * vectors, True, columns)
    (given, _, _), (right, _, _) = sliced(put, x_bits), sliced(put, dy_bits)
    dx, at, shape = sliced(put, np.full((pixels, channels), 0xFFFF, np.uint16))
    weight = packed(put, places, w_bits)
    arguments = masking, size, tile, 4
    splits = pointwise.gradients_launch("", 1, given, right, dx, weight, 0, *arguments).grid[0]
    partial = made.memory.reserve(4 * size * splits)
    made.run(pointwise.gradients_launch("", 1, given, right, dx, weight, partial, *arguments))
    assert splits > 1
    wanted = dy @ w[:, 0, 0] * ((x > 0) if masking else 1)
    assert relative(of_bits(delivered(made, at, shape)), wanted) < 4e-3
    total = made.memory.get(partial, size * splits, np.float32).reshape(splits, size).sum(0, dtype=np.float64)
    assert relative(total, np.concatenate([(dy.T @ x).reshape(-1), dy.sum(0)])) < 1e-6


KERNELS = {
    FORWARD: ("make_pointwise_convolution", pointwise_forward, (1,), lambda tile: tile.columns // 2),
    BACKWARD: ("make_pointwise_gradients", pointwise_gradients, (1,), lambda tile: 32 + tile.depth // 4),
}
"""By direction of the candidate: factory, module, arguments beside the tile, sums that a thread holds."""

SHARED = 227 << 10
"""Bytes of shared memory that a block may have on compute capability 9.0; each takes 1 KiB more of 228 in all."""


@cache
def every_tile():
    """Direction and tile of every configuration for a network's layers, once."""
    frame = frame_for(lower(with_loss(build("squeezenet1_0", 10, 224), 0.0, ()), True), 32, "mixed", (9, 0))
    found = set()
    with frame.comparing():
        for step, direction in product(frame.program.steps, KERNELS):
            for row in CANDIDATES.of((step.op,), direction):
                case = Case(frame, (step,), direction)
                if row.name == "pointwise_tma" and not row.reason_against(case):
                    found |= {(direction, tile) for tile in row.configurations(case)}
    return sorted(found, key=lambda one: (one[0], one[1].numbers))


@pytest.mark.parametrize("direction", sorted(KERNELS))
def test_every_tile_and_every_case_of_the_gpu_fits_into_shared_memory(direction):
    found = [(module.shared_bytes(tile), tile) for at, tile in every_tile() for module in (KERNELS[at][1],)
             if at == direction]
    assert found
    for size, tile in found:
        assert size <= SHARED, tile
        assert tile.blocks * (size + 1024) <= SHARED + 1024, tile
    assert all(launch.shared <= SHARED for launch in launches())


def check(direction, tile):
    factory, module, more, _ = KERNELS[direction]
    name = module.__name__.removeprefix("core.gpu.")
    recipe = Recipe(name, factory, (tile.numbers, *more), module.SIGNATURE.kinds, module.threads_of(tile), tile.blocks)
    ptx, _ = compile_kernel(recipe, (9, 0))
    assert ".local" not in ptx
    assert ".target sm_90a" in ptx
    assert "Potential Performance Loss" not in assembler_log(ptx, "sm_90a")
    resources = assemble(ptx, (9, 0))
    assert (resources.stack, resources.spills) == (0, 0)


@pytest.mark.parametrize("direction", sorted(KERNELS))
def test_products_overlap_and_sums_stay_in_registers(direction):
    _, module, _, sums = KERNELS[direction]
    found = [tile for at, tile in every_tile() if at == direction]
    check(direction, max(found, key=lambda tile: sums(tile) * module.threads_of(tile) * tile.blocks))


@pytest.mark.slow
@pytest.mark.parametrize(("direction", "tile"), every_tile())
def test_every_tile_fits_into_registers(direction, tile):
    check(direction, tile)


@pytest.mark.parametrize("other", [{"hardware": AMPERE}, {"hardware": typical(), "precision": "float32"}], ids=str)
def test_no_other_gpu_and_no_other_precision_takes_them(other):
    launches = frame_of("squeezenet1_0", batch=32, size=224, **other).launches
    assert not {launch.recipe.factory for launch in launches} & {factory for factory, *_ in KERNELS.values()}
