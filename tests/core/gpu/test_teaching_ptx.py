"""Every teaching kernel compiles without a GPU, and its threads keep everything in registers."""

import importlib
import json
import re

import pytest
from cuda.pathfinder import DynamicLibNotFoundError

from core.errors import DeviceError
from core.gpu.compilation.compiler import Recipe, compile_kernel
from core.gpu.compilation.cuda import cuda
from core.gpu.ops.matmul import tensor_core, warp_tiled
from core.gpu.sm90 import matmul_tma
from core.gpu.teaching.kernel import TeachingKernel
from tests.helpers.commands import ROOT
from tests.helpers.resources import CAPABILITIES, assembler_log, check_registers

GPU = ROOT / "core" / "gpu"


def kernels(module):
    found = vars(importlib.import_module(f"core.gpu.{module}"))
    return {
        name: value for name, value in found.items()
        if isinstance(value, TeachingKernel) and value.py_func.__module__ == f"core.gpu.{module}"
    }  # fmt: skip


FILES = (path.relative_to(GPU).with_suffix("") for path in sorted(GPU.rglob("*.py")))
MODULES = [module for module in (".".join(file.parts) for file in FILES) if kernels(module)]
THREADS = {"ops.matmul.warp_tiled": 256, "ops.matmul.narrow": 128}
"""Threads of a block, where they decide on the registers."""

VECTORISED = {"ops.matmul.tiled": ("tiled_vectorised", "double_buffered"), "ops.matmul.warp_tiled": ("large", "deep"),
              "ops.matmul.narrow": ("narrow",)}  # fmt: skip
"""Kernels that move 16 bytes at a time."""
MEASURED = json.loads((ROOT / "benchmarks/results/product_tiles-h200.json").read_text())["rates"]
"""TFLOP/s by side and tile."""

ON_EVERY_GPU = (
    ("ops.conv.shared", "shared_forward"), ("ops.dense.product", "product_nt"), ("ops.matmul.tiled", "double_buffered"),
    ("ops.elementwise.naive", "naive_add"),
)
"""Kernels compiled for every generation; the others, of the same make, for Hopper only (time)."""


def generations(first=(7, 5)):
    """Every generation from the first on. All but the first and the newest are slow tests."""
    everyday = (first, CAPABILITIES[-1])
    return [c if c in everyday else pytest.param(c, marks=pytest.mark.slow) for c in CAPABILITIES if c >= first]


def sm(capability):
    return f"sm_{capability[0]}{capability[1]}"


def check(module, name, capability):
    threads = 32 * warp_tiled.LARGE[3] if name == "large" else THREADS.get(module, 256)
    ptx, _ = compile_kernel(kernels(module)[name].recipe(threads), capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    resources = check_registers(ptx, capability)
    assert 0 < resources.registers <= 255
    assert resources.shared <= (48 + (capability >= (8, 0))) * 1024  # one more that the driver takes since Ampere
    return ptx


@pytest.mark.parametrize("module", MODULES)
def test_every_kernel_fits_into_registers(module):
    ptx = {name: check(module, name, (9, 0)) for name in set(kernels(module)) - {"small"}}  # between the others
    for name in VECTORISED.get(module, ()):
        assert all(f"{access}.v4" in ptx[name] for access in ("ld.global", "ld.shared", "st.shared", "st.global")), name


def test_without_nvvm_the_sentence_says_what_to_install(monkeypatch):
    def compile_nothing(*given, **more):
        raise DynamicLibNotFoundError("nvvm")

    monkeypatch.setattr(cuda, "compile", compile_nothing)
    with pytest.raises(DeviceError, match=r"NVVM.*\[cuda\]"):
        check("ops.conv.naive", "naive_forward", (9, 0))


@pytest.mark.parametrize("capability", generations(), ids=sm)
def test_teaching_kernels_compile_for_every_generation(capability):
    for module, name in ON_EVERY_GPU:
        check(module, name, capability)


@pytest.mark.parametrize("capability", generations((8, 0)), ids=sm)
def test_the_tensor_core_product_compiles_from_ampere_on(capability):
    tile = tensor_core.TILE
    kinds, threads = tensor_core.SIGNATURE.types, 32 * tile[4] * tile[5]
    ptx, _ = compile_kernel(Recipe("ops.matmul.tensor_core", "make_kernel", tile, kinds, threads), capability)
    assert "mma.sync.aligned.m16n8k16" in ptx
    assert "cp.async" in ptx
    check_registers(ptx, capability)


EXTREME_TILES = [matmul_tma.LARGE, min(matmul_tma.TILES, key=tuple)]
"""The tile of most registers and the smallest one; the others are slow tests."""


@pytest.mark.parametrize("tile", [
    t if t in EXTREME_TILES else pytest.param(t, marks=pytest.mark.slow) for t in matmul_tma.TILES
], ids=str)  # fmt: skip
def test_tma_moves_everything_that_is_multiplied(tile):
    recipe = Recipe("sm90.matmul_tma", "make_product", tile, matmul_tma.SIGNATURE.types, tile.threads)
    ptx, _ = compile_kernel(recipe, (9, 0))
    assert ptx.count("wgmma.mma_async") in range(4, 4096, 4)
    assert ".local" not in ptx
    log = assembler_log(ptx, "sm_90a")
    assert "serialized" not in log, log
    assert "0 bytes stack frame, 0 bytes spill stores" in log
    registers = int(re.search(r"Used (\d+) registers", log)[1])
    assert registers * 32 * -(-tile.threads // 32) <= 65536, "the block does not fit on a multiprocessor"
    assert tile.shared <= 227 * 1024
    assert "cp.async.bulk.tensor.2d" in ptx
    assert "ld.global" not in ptx, "the threads load nothing themselves"
    assert ptx.count(".param .align 64 .b8") == 2, "both tensor maps travel as parameters"


@pytest.mark.parametrize("side", sorted(MEASURED, key=int))
def test_the_bf16_tile_is_the_fastest_at_every_measured_size(side):
    rates = MEASURED[side]
    tile = matmul_tma.choose(int(side), int(side), 132)
    assert rates[f"{tile.rows}x{tile.columns}/{tile.stages}"] >= 0.98 * max(rates.values())


@pytest.mark.parametrize("side", [5120, 6144, 8192, 16384])
def test_beyond_them_it_is_the_largest(side):
    assert matmul_tma.choose(side, side, 132) is matmul_tma.LARGE


@pytest.mark.parametrize(("side", "tile"), [(4096, "LARGE"), (1024, "SMALL"), (512, "DEEP"), (4, "DEEP")])
def test_the_float32_tile_fills_the_processors(side, tile):
    assert warp_tiled.choose(side, side) == getattr(warp_tiled, tile)
