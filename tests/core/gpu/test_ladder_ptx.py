"""Every teaching kernel compiles without a GPU, and its threads keep everything in registers."""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from pathlib import Path

import pytest

from core.gpu.compilation.cuda import compile_to_ptx
from core.gpu.kernels.ladder import matmul_warp
from core.gpu.kernels.ladder.matmul_tensor_core import KINDS, TILE, make_kernel
from core.gpu.sm90 import matmul_tma, matmul_wgmma
from tests.helpers.resources import CAPABILITIES, assemble, assembler_log, kernel_ptx

LADDER = (
    "matmul", "matmul_narrow", "matmul_tensor_core", "matmul_warp", "reduction",
)  # fmt: skip
FAMILIES = (
    "conv.naive", "conv.shared", "conv.im2col", "dense.naive", "dense.product", "dense.warp", "depthwise.naive",
    "depthwise.tiled_weight_gradient", "elementwise.naive", "elementwise.naive_dropout", "loss.naive", "norm.naive",
    "pool.naive", "update.naive",
)  # fmt: skip
MODULES = (*(f"kernels.ladder.{name}" for name in LADDER), *(f"ops.{name}" for name in FAMILIES))

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
MEASURED = json.loads((RESULTS / "product_tiles-h200.json").read_text(encoding="utf-8"))["rates"]
"""TFLOP/s by side and tile."""

ON_EVERY_GPU = (
    ("ops.conv.shared", "shared_forward"),
    ("ops.dense.product", "product_nt"),
    ("kernels.ladder.matmul", "double_buffered"),
    ("kernels.ladder.matmul_warp", "large"),
    ("ops.elementwise.naive", "vectorised_relu"),
)
"""Kernels compiled for every generation; the others, of the same make, for Hopper only (time)."""

EVERYDAY = ((7, 5), (8, 0), (9, 0), (12, 0))
"""The oldest and the newest generation and those that brought most new instructions; the others are slow tests."""


def generations(first=(7, 5)):
    """Every generation from the first on."""
    return [c if c in EVERYDAY else pytest.param(c, marks=pytest.mark.slow) for c in CAPABILITIES if c >= first]


def sm(capability):
    return f"sm_{capability[0]}{capability[1]}"


@cache
def ptx_of(kernel, capability):
    return kernel_ptx(kernel, capability)


def kernels(module):
    found = vars(importlib.import_module(f"core.gpu.{module}"))
    return {
        name: value
        for name, value in found.items()
        if hasattr(value, "py_func") and not value.targetoptions.get("device")
        and value.py_func.__module__ == f"core.gpu.{module}"
    }  # fmt: skip


def check(kernel, capability):
    ptx = ptx_of(kernel, capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx, "an array went to local memory"
    resources = assemble(ptx, capability)
    assert resources.registers > 0
    assert (resources.stack, resources.spills) == (0, 0)
    assert resources.registers <= 255
    assert resources.shared <= (48 + (capability >= (8, 0))) * 1024  # one more that the driver takes since Ampere
    return ptx


@pytest.mark.parametrize("module", MODULES)
def test_every_kernel_fits_into_registers(module):
    found = kernels(module)
    assert found
    for kernel in found.values():
        check(kernel, (9, 0))


@pytest.mark.parametrize("capability", generations(), ids=sm)
def test_the_ladder_compiles_for_every_generation(capability):
    for module, name in ON_EVERY_GPU:
        check(kernels(module)[name], capability)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("kernels.ladder.matmul", "tiled_vectorised"), ("kernels.ladder.matmul", "double_buffered"),
        ("kernels.ladder.matmul_warp", "large"), ("kernels.ladder.matmul_warp", "small"),
        ("kernels.ladder.matmul_warp", "deep"), ("kernels.ladder.matmul_narrow", "narrow"),
    ],
)
def test_wide_rungs_load_and_store_16_bytes_at_a_time(module, name):
    ptx = ptx_of(kernels(module)[name], (9, 0))
    for instruction in ("ld.global.v4", "ld.shared.v4", "st.shared.v4", "st.global.v4"):
        assert instruction in ptx, instruction


@pytest.mark.parametrize("capability", generations((8, 0)), ids=sm)
def test_the_tensor_core_product_compiles_from_ampere_on(capability):
    ptx, _ = compile_to_ptx(make_kernel(*TILE), KINDS, capability, (32 * TILE[4] * TILE[5], 1))
    assert "mma.sync.aligned.m16n8k16" in ptx
    assert "cp.async" in ptx
    resources = assemble(ptx, capability)
    assert (resources.stack, resources.spills) == (0, 0)


def check_hopper(ptx):
    assert ptx.count("wgmma.mma_async") % 4 == 0
    assert ptx.count("wgmma.mma_async") > 0
    assert ".local" not in ptx
    log = assembler_log(ptx, "sm_90a")
    assert "serialized" not in log, log
    assert "0 bytes stack frame, 0 bytes spill stores" in log
    return int(re.search(r"Used (\d+) registers", log)[1])


def test_wgmma_keeps_the_matrix_units_busy():
    check_hopper(matmul_wgmma.ptx()[0])


@pytest.mark.parametrize("tile", matmul_tma.TILES, ids=str)
def test_tma_moves_everything_that_is_multiplied(tile):
    ptx, _ = matmul_tma.ptx(tile)
    registers = check_hopper(ptx)
    assert registers * 32 * -(-tile.threads // 32) <= 65536, "the block does not fit on a multiprocessor"
    assert tile.shared <= 227 * 1024
    assert "cp.async.bulk.tensor.2d" in ptx
    assert "ld.global" not in ptx, "the threads load nothing themselves"
    assert ptx.count(".param .align 64 .b8") == 2, "both tensor maps travel as parameters"


@pytest.mark.parametrize("side", sorted(MEASURED, key=int))
def test_the_bf16_tile_is_the_fastest_at_every_measured_size(side):
    rates = MEASURED[side]
    tile = matmul_tma.choose(int(side), int(side))
    assert rates[f"{tile.rows}x{tile.columns}/{tile.stages}"] >= 0.98 * max(rates.values())


@pytest.mark.parametrize("side", [5120, 6144, 8192, 16384])
def test_beyond_them_it_is_the_largest(side):
    assert matmul_tma.choose(side, side) is matmul_tma.LARGE


@pytest.mark.parametrize(("side", "tile"), [(4096, "LARGE"), (1024, "SMALL"), (512, "DEEP"), (4, "DEEP")])
def test_the_float32_tile_fills_the_processors(side, tile):
    assert matmul_warp.choose(side, side) == getattr(matmul_warp, tile)
