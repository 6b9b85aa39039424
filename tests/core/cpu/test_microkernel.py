"""The register tile of every shape and level: sums, starts, ends, and nothing written beyond its lanes."""

import functools
from itertools import product

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features
from numba import njit

from core.cpu import microkernel as mk
from core.cpu.instruction_set import INSTRUCTION_SETS, problem
from core.cpu.memory import FIELDS, aligned
from core.cpu.tile_code import tile_table

GUARD = np.float32(-77)
DEPTH = 5


@functools.cache
def _runner(name):
    tile = mk.make_tile(INSTRUCTION_SETS[name])
    tiles = tile_table(name).ctypes.data

    @njit
    def run(tiles, shape, record, a, b, c, x, mask, lanes):
        tile(tiles, shape, record, a, b, c, x, mask, 1, lanes)

    return functools.partial(run, tiles)


def _run(name, vectors, rows, lanes, flags, given):
    """C of one tile, in rows a vector longer than the tile."""
    isa, (a, b, c, x, mask) = INSTRUCTION_SETS[name], given
    wide = max(vectors, 1) * isa.vector_width
    record = np.zeros(FIELDS, np.int64)
    record[[mk.SAM, mk.SAK]] = (4, 4 * rows) if vectors else (4 * wide, 4 * wide * rows)
    record[[mk.SBK, mk.KW, mk.KL, mk.FLAGS]] = 4 * wide, 1, DEPTH, flags
    record[mk.LDC] = record[mk.LDM] = 4 * (wide + isa.vector_width)
    addresses = [array.ctypes.data for array in (a, b, c, x, mask)]
    _runner(name)(vectors * 64 + rows, record.ctypes.data, *addresses, lanes)


def _wanted(vectors, rows, wide, flags, given):
    a, b, c, x, mask = (array.astype(np.float64) for array in given)
    b = b[: DEPTH * wide].reshape(DEPTH, wide)
    if vectors:
        total = a[: DEPTH * rows].reshape(DEPTH, rows).T @ b
    else:
        total = np.einsum("kmn,kn->mn", a[: DEPTH * rows * wide].reshape(DEPTH, rows, wide), b)
    stride = len(c) // rows
    old, seen = (array.reshape(rows, stride)[:, :wide] for array in (c, mask))
    if flags & mk.ACCUMULATE:
        total = total + old
    elif flags & mk.BIAS:
        total = total + x[:wide]
    if flags & mk.MASK:
        return np.where((seen > 0) & ((seen < 6) | (not flags & mk.CAP)), total, 0)
    total = np.maximum(total, 0) if flags & mk.RELU else total
    return np.minimum(total, 6) if flags & mk.CAP else total


def _tiles(name):
    """Vectors, rows and floats of a row of every tile of a level, and the floats of A, B, C, X and the mask."""
    isa = INSTRUCTION_SETS[name]
    for vectors, heights in isa.tile_heights.items():
        wide = max(vectors, 1) * isa.vector_width
        for rows in heights:
            image = rows * (wide + isa.vector_width)
            yield vectors, rows, wide, (DEPTH * rows * wide, DEPTH * wide, image, wide, image)


@pytest.mark.parametrize("flags", [0, mk.BIAS | mk.RELU, mk.BIAS | mk.RELU | mk.CAP, mk.ACCUMULATE, mk.MASK | mk.CAP])
@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_every_tile_gives_its_sums_and_writes_its_lanes_only(name, flags):
    if problem(name, get_host_cpu_features()):
        pytest.skip(problem(name, get_host_cpu_features()))
    width, rng = INSTRUCTION_SETS[name].vector_width, np.random.default_rng(flags)
    for (vectors, rows, wide, counts), lanes in product(_tiles(name), (1, width - 1, width)):
        given = [aligned(count) for count in counts]
        for array in given:
            array[:] = 4 * rng.standard_normal(len(array))
        valid = wide - width + lanes
        given[2].reshape(rows, -1)[:, valid:] = GUARD
        wanted = _wanted(vectors, rows, wide, flags, given)
        _run(name, vectors, rows, lanes, flags, given)
        out = given[2].reshape(rows, -1)
        np.testing.assert_allclose(out[:, :valid], wanted[:, :valid], 1e-5, 1e-4, err_msg=f"{vectors} {rows}")
        assert (out[:, valid:] == GUARD).all(), (vectors, rows, lanes)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_a_whole_tile_and_one_of_fewer_lanes_give_the_same_bits(name):
    if problem(name, get_host_cpu_features()):
        pytest.skip(problem(name, get_host_cpu_features()))
    width, rng = INSTRUCTION_SETS[name].vector_width, np.random.default_rng(0)
    for vectors, rows, wide, counts in _tiles(name):
        given = [rng.standard_normal(count).astype(np.float32) for count in counts]
        whole, part = ([array.copy() for array in given] for _ in range(2))
        _run(name, vectors, rows, width, mk.BIAS, whole)
        _run(name, vectors, rows, width - 1, mk.BIAS, part)
        images = [given_[2].reshape(rows, -1)[:, : wide - 1] for given_ in (whole, part)]
        assert (images[0] == images[1]).all(), (vectors, rows)
