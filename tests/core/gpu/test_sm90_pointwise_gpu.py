"""1x1 convolutions by TMA on a GPU: odd sizes and slices, poisoned outputs, the same bits twice."""

import numpy as np
import pytest

from core.gpu.launch import Tensor, blocks_of
from core.gpu.parts.tile import Tile
from core.gpu.sm90 import pointwise, pointwise_forward, pointwise_gradients
from core.gpu.sm90.filters import pack_vectors
from tests.helpers.gpu_network import open_hopper, relative
from tests.helpers.rounded import of_bits, to_bits

pytestmark = pytest.mark.gpu

POISON = 0xFFFF
"""A NaN in bf16, as bits; in float32 twice these."""

BESIDE = 8
"""Channels before a slice; as many come after it."""


def rounded(draw, *shape, relu=False):
    x = draw.normal(size=shape).astype(np.float32)
    return of_bits(to_bits(np.maximum(x, 0) if relu else x))


@pytest.fixture
def gpu():
    """(function that puts an array on the GPU and gives its block, function that runs a launch)."""
    from core.gpu.compilation.cuda import driver
    from core.gpu.driver.memory import Block

    device, blocks = open_hopper(), []
    device.load([launch.recipe for launch in launches()])  # side by side, where the cache has none of them

    def put(array):
        blocks.append(Block(array.nbytes))
        blocks[-1].put(array)
        return blocks[-1]

    def run(launch):
        function = device.load([launch.recipe])[launch.recipe]
        function.launch(launch.grid, launch.block, launch.shared, driver.CUstream(0), launch.values)
        device.synchronize()

    yield put, run
    for block in blocks:
        block.close()


def pack(places, weight):
    """bf16 bits of packed filters."""
    flat = np.append(to_bits(weight).reshape(-1), np.uint16(0))
    return flat[places.reshape(-1)]


def wide(pixels, channels):
    """Poisoned bits of a concatenation that a slice of so many channels lies in, and three pixels more."""
    return np.full((pixels + 3, channels + 2 * BESIDE), POISON, np.uint16)


def tensor(block, pixels, channels, pitch, first=0):
    return Tensor(block.address + 2 * first, 1, pixels, channels, pitch, 2)


FORWARD = [
    (1, 8, 8, "relu", Tile(64, 8, 16, 4, 4, 1, 2)), (63, 24, 40, "", Tile(128, 40, 48, 5, 8, 1, 1)),
    (65, 72, 24, "relu6", Tile(128, 24, 144, 3, 8, 1, 2)), (333, 136, 136, "relu", Tile(192, 136, 272, 4, 12, 1, 1)),
    (5000, 16, 64, "relu", Tile(128, 64, 32, 8, 8, 1, 2)), (777, 64, 256, "relu", Tile(128, 128, 128, 8, 8, 1, 2)),
]  # fmt: skip
"""Pixels, channels, filters, activation and tile; the last one's filters are two blocks, the fourth's ring of four
stages starts over within the three of a tile of pixels."""

BACKWARD = [
    (1, 8, 8, "relu", Tile(64, 64, 16, 2, 4, 1, 2)), (63, 72, 24, "", Tile(64, 128, 48, 3, 8, 1, 1)),
    (65, 136, 40, "relu6", Tile(64, 128, 80, 3, 8, 1, 2)), (5000, 96, 16, "relu", Tile(64, 128, 32, 4, 8, 1, 2)),
    (777, 384, 48, "relu", Tile(64, 192, 96, 3, 12, 1, 1)), (777, 512, 64, "relu", Tile(64, 128, 128, 3, 8, 1, 2)),
]  # fmt: skip
"""Pixels, channels, filters, activation of the input and tile."""

NOWHERE = Tensor(0, 1, 64, 512, 512, 2)


def launches():
    forward = [pointwise.forward_launch("", 1, NOWHERE, NOWHERE, 0, 0, case[3], case[4], 132) for case in FORWARD]
    backward = [
        pointwise.gradients_launch("", 1, NOWHERE, NOWHERE, NOWHERE, 0, 0, case[3], 1, case[4], 132)
        for case in BACKWARD
    ]
    return [*forward, *backward]


@pytest.mark.parametrize(("pixels", "channels", "filters", "activation", "tile"), FORWARD)
def test_the_forward_product_fills_its_slice_and_nothing_else(pixels, channels, filters, activation, tile, gpu):
    put, run = gpu
    draw = np.random.default_rng(pixels)
    x, weight = rounded(draw, pixels, channels), rounded(draw, filters, 1, 1, channels)
    bias = draw.normal(size=filters).astype(np.float32)
    places = pack_vectors([np.arange(weight.size).reshape(weight.shape)], 16 * pointwise_forward.vectors_of(tile))
    source = wide(pixels, channels)
    source[:pixels, BESIDE : BESIDE + channels] = to_bits(x)
    held, given, packed, biases = (put(a) for a in (wide(pixels, filters), source, pack(places, weight), bias))
    launch = pointwise.forward_launch(
        "one", 1, tensor(given, pixels, channels, channels + 2 * BESIDE, BESIDE),
        tensor(held, pixels, filters, filters + 2 * BESIDE, BESIDE), packed.address, biases.address, activation, tile,
        132,
    )  # fmt: skip
    found = []
    for _ in range(2):
        held.put(np.full(held.size, 0xFF, np.uint8))
        run(launch)
        found.append(held.get((pixels + 3) * (filters + 2 * BESIDE), np.uint16).reshape(pixels + 3, -1))
    assert np.array_equal(*found)
    wanted = x.astype(np.float64) @ weight[:, 0, 0].astype(np.float64).T + bias
    wanted = np.clip(wanted, 0 if activation else -np.inf, 6 if activation == "relu6" else np.inf)
    assert relative(of_bits(found[0][:pixels, BESIDE : BESIDE + filters]), wanted) < 4e-3
    found[0][:pixels, BESIDE : BESIDE + filters] = POISON
    assert (found[0] == POISON).all()


@pytest.mark.parametrize(("pixels", "channels", "filters", "masking", "tile"), BACKWARD)
def test_both_gradients_agree_with_the_reference(pixels, channels, filters, masking, tile, gpu):
    put, run = gpu
    draw = np.random.default_rng(pixels)
    x, dy = 4 * rounded(draw, pixels, channels, relu=True), rounded(draw, pixels, filters)
    x, weight = np.minimum(x, 6), rounded(draw, filters, 1, 1, channels)
    vectors, columns = pointwise_gradients.vectors_of(tile), blocks_of(channels, tile.columns) * tile.columns
    places = pack_vectors([np.arange(weight.size).reshape(weight.shape)], 16 * vectors, True, columns)
    size = filters * channels + filters
    given, right, packed = put(to_bits(x)), put(to_bits(dy)), put(pack(places, weight))
    held, partial = put(wide(pixels, channels)), put(np.zeros(size * 132 * tile.blocks + 8, np.float32))
    launch = pointwise.gradients_launch(
        "one", 1, tensor(given, pixels, channels, channels), tensor(right, pixels, filters, filters),
        tensor(held, pixels, channels, channels + 2 * BESIDE, BESIDE), packed.address, partial.address, masking, size,
        tile, 132,
    )  # fmt: skip
    splits, found = launch.grid[0], []
    for _ in range(2):
        held.put(np.full(held.size, 0xFF, np.uint8))
        partial.put(np.full(partial.size, 0xFF, np.uint8))
        run(launch)
        dx = held.get((pixels + 3) * (channels + 2 * BESIDE), np.uint16).reshape(pixels + 3, -1)
        found.append((dx, partial.get(size * splits + 8, np.uint32)))
    assert all(np.array_equal(*pair) for pair in zip(*found, strict=True))
    dx, sums = found[0]
    wanted = dy.astype(np.float64) @ weight[:, 0, 0].astype(np.float64)
    wanted = wanted if not masking else wanted * ((x > 0) & ((x < 6) | (masking == "relu")))
    assert relative(of_bits(dx[:pixels, BESIDE : BESIDE + channels]), wanted) < 4e-3
    dx[:pixels, BESIDE : BESIDE + channels] = POISON
    assert (dx == POISON).all()
    assert (sums[splits * size :] == 0xFFFFFFFF).all()
    total = sums[: splits * size].view(np.float32).reshape(splits, size).sum(0, dtype=np.float64)
    assert relative(total[: filters * channels].reshape(filters, channels), dy.T.astype(np.float64) @ x) < 1e-4
    assert relative(total[filters * channels :], dy.sum(0, dtype=np.float64)) < 1e-4
