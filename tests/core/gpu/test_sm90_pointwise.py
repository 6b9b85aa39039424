"""1x1 convolutions by TMA: run as plain Python, copies and products as early or late as allowed, and on a GPU."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.compiler import Recipe, compile_kernel
from core.gpu.hardware import typical
from core.gpu.launch import Tensor, blocks_of
from core.gpu.parts.tile import Tile
from core.gpu.select import BACKWARD, FORWARD, Case
from core.gpu.sm90 import pointwise, pointwise_forward, pointwise_gradients
from core.gpu.sm90.filters import pack_vectors
from tests.core.gpu.test_lowering import frame_of
from tests.helpers.emulated_gpu import Memory
from tests.helpers.emulated_tma import TmaMachine
from tests.helpers.gpu_machine import GpuMachine, Output, results
from tests.helpers.gpu_network import AMPERE, relative
from tests.helpers.resources import check_overlapping
from tests.helpers.rounded import of_bits, to_bits

BESIDE = 8
"""Channels before a slice; as many come after it."""
POISON = 0xFFFF
"""A NaN in bf16, as bits."""


def bf16(draw, *shape, relu=False):
    """(values, bits) of random bf16; behind a ReLU6 many are 0, and some 6."""
    x = draw.normal(size=shape)
    bits = to_bits(np.clip(4 * x, 0, 6) if relu else x)
    return of_bits(bits).astype(np.float64), bits


@pytest.fixture(params=["early", "late"])
def emulated(request, monkeypatch):
    machine = TmaMachine(Memory(1 << 22), request.param == "late")
    for module in (pointwise_forward, pointwise_gradients):
        machine.patch(monkeypatch, module)
    return machine


@pytest.fixture
def hopper():
    machine = GpuMachine(launches())
    yield machine
    machine.free()


def slice_of(address, pixels, channels):
    return Tensor(address + 2 * BESIDE, 1, pixels, channels, channels + 2 * BESIDE, 2)


def place_slice(machine, bits):
    """Tensor of a slice of channels; the other channels, and three pixels more, are poison."""
    wide = np.pad(bits, ((0, 3), (BESIDE, BESIDE)), constant_values=POISON)
    return slice_of(machine.memory.place(wide), *bits.shape)


def new_slice(machine, pixels, channels):
    """Such a tensor to be written, and its output with what is around it."""
    out = Output(machine.memory, (pixels + 3, channels + 2 * BESIDE))
    return slice_of(out.address, pixels, channels), out


def values_of(whole, pixels):
    """The numbers of a written slice; nothing was written beside it."""
    mine = whole[:pixels, BESIDE:-BESIDE].copy()
    whole[:pixels, BESIDE:-BESIDE] = POISON
    assert (whole == POISON).all()
    return of_bits(mine)


def place_filters(machine, places, bits):
    return machine.memory.place(np.append(bits.reshape(-1), np.uint16(0))[places.reshape(-1)])


def check_forward(machine, processors, pixels, channels, filters, activation, tile):
    draw = np.random.default_rng(pixels)
    (x, x_bits), (w, w_bits) = bf16(draw, pixels, channels), bf16(draw, filters, 1, 1, channels)
    bias = draw.normal(size=filters).astype(np.float32)
    places = pack_vectors([np.arange(w.size).reshape(w.shape)], 16 * pointwise_forward.vectors_of(tile))
    given, (out, written) = place_slice(machine, x_bits), new_slice(machine, pixels, filters)
    weight, biases = place_filters(machine, places, w_bits), machine.memory.place(bias)
    launch = pointwise.forward_launch("", 1, given, out, weight, biases, activation, tile, processors)
    (whole,) = results(machine, launch, written)
    wanted = np.clip(x @ w[:, 0, 0].T + bias, 0 if activation else None, 6 if activation == "relu6" else None)
    assert relative(values_of(whole, pixels), wanted) < 4e-3


def check_gradients(machine, processors, limit, pixels, channels, filters, masking, tile):
    draw = np.random.default_rng(pixels)
    (x, x_bits), (dy, dy_bits) = bf16(draw, pixels, channels, relu=True), bf16(draw, pixels, filters)
    w, w_bits = bf16(draw, filters, 1, 1, channels)
    columns, size = blocks_of(channels, tile.columns) * tile.columns, filters * channels + filters
    vectors = pointwise_gradients.vectors_of(tile)
    places = pack_vectors([np.arange(w.size).reshape(w.shape)], 16 * vectors, True, columns)
    given, right = place_slice(machine, x_bits), place_slice(machine, dy_bits)
    dx, written = new_slice(machine, pixels, channels)
    weight = place_filters(machine, places, w_bits)

    def launch(partial):
        return pointwise.gradients_launch("", 1, given, right, dx, weight, partial, masking, tile, processors)

    splits = launch(0).grid[0]
    partial = Output(machine.memory, (splits * size + 8,), np.float32)
    whole, sums = results(machine, launch(partial.address), written, partial)
    wanted = dy @ w[:, 0, 0]
    wanted = wanted if not masking else wanted * ((x > 0) & ((x < 6) | (masking == "relu")))
    assert relative(values_of(whole, pixels), wanted) < 4e-3
    assert (sums[splits * size :].view(np.uint32) == 0xFFFFFFFF).all()
    total = sums[: splits * size].reshape(splits, size).sum(0, dtype=np.float64)
    assert relative(total[: filters * channels], (dy.T @ x).reshape(-1)) < limit
    assert relative(total[filters * channels :], dy.sum(0)) < limit
    return splits


@pytest.mark.parametrize("case", [
    (70, 8, 16, "relu", Tile(64, 16, 16, 2, 4, 1, 1)), (500, 136, 24, "relu", Tile(128, 24, 272, 3, 8, 1, 1)),
    (330, 40, 128, "relu", Tile(128, 64, 80, 2, 8, 1, 1)),
], ids=str)  # fmt: skip
def test_the_forward_product(case, emulated):
    check_forward(emulated, 2, *case)


@pytest.mark.parametrize("case", [
    (70, 64, 16, "relu", Tile(64, 64, 32, 2, 4, 1, 1)), (70, 64, 16, "", Tile(64, 64, 32, 2, 4, 1, 1)),
    (400, 200, 40, "relu", Tile(64, 128, 80, 2, 8, 1, 1)),
], ids=str)  # fmt: skip
def test_both_gradients(case, emulated):
    assert check_gradients(emulated, 4, 1e-6, *case) > 1


ON_A_GPU = [
    (1, 8, 8, "relu", Tile(64, 8, 16, 4, 4, 1, 2)), (63, 24, 40, "", Tile(128, 40, 48, 5, 8, 1, 1)),
    (65, 72, 24, "relu6", Tile(128, 24, 144, 3, 8, 1, 2)), (333, 136, 136, "relu", Tile(192, 136, 272, 4, 12, 1, 1)),
    (5000, 16, 64, "relu", Tile(128, 64, 32, 8, 8, 1, 2)), (777, 64, 256, "relu", Tile(128, 128, 128, 8, 8, 1, 2)),
]  # fmt: skip
"""Pixels, channels, filters, activation and tile; the last one's filters are two blocks, the fourth's ring of four
stages starts over within the three of a tile of pixels."""

GRADIENTS_ON_A_GPU = [
    (1, 8, 8, "relu", Tile(64, 64, 16, 2, 4, 1, 2)), (63, 72, 24, "", Tile(64, 128, 48, 3, 8, 1, 1)),
    (65, 136, 40, "relu6", Tile(64, 128, 80, 3, 8, 1, 2)), (5000, 96, 16, "relu", Tile(64, 128, 32, 4, 8, 1, 2)),
    (777, 384, 48, "relu", Tile(64, 192, 96, 3, 12, 1, 1)), (777, 512, 64, "relu", Tile(64, 128, 128, 3, 8, 1, 2)),
]  # fmt: skip
"""Pixels, channels, filters, activation of the input and tile."""


def launches():
    """Those of all cases, on arrays that are not there."""
    at = Tensor(0, 1, 64, 512, 512, 2)
    return [
        *(pointwise.forward_launch("", 1, at, at, 0, 0, one[3], one[4], 132) for one in ON_A_GPU),
        *(pointwise.gradients_launch("", 1, at, at, at, 0, 0, one[3], one[4], 132) for one in GRADIENTS_ON_A_GPU),
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("case", ON_A_GPU, ids=str)
def test_on_a_gpu_the_forward_product_fills_its_slice_and_nothing_else(case, hopper):
    check_forward(hopper, 132, *case)


@pytest.mark.gpu
@pytest.mark.parametrize("case", GRADIENTS_ON_A_GPU, ids=str)
def test_on_a_gpu_both_gradients_agree_with_the_reference(case, hopper):
    check_gradients(hopper, 132, 1e-4, *case)


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
    frame = frame_of("squeezenet1_0", batch=32, size=224, hardware=typical())
    found = set()
    for step, direction in product(frame.program.steps, KERNELS):
        usable, _ = CANDIDATES.usable(Case(frame, (step,), direction))
        found |= {(direction, tile) for tile in usable.get("pointwise_tma", ())}
    return sorted(found, key=lambda one: (one[0], one[1]))


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
    recipe = Recipe(name, factory, (tile, *more), module.SIGNATURE.types, module.threads_of(tile), tile.blocks)
    ptx, _ = compile_kernel(recipe, (9, 0))
    check_overlapping(ptx)


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
