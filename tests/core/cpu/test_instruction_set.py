"""Instruction sets: which is chosen, which is refused, and that all compute the same."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numba
import pytest
from llvmlite.binding import get_host_cpu_features
from numba.core.caching import IndexDataCacheFile

from core.cpu import instruction_set
from core.cpu.instruction_set import INSTRUCTION_SETS, KERNEL_SOURCES, cached, choose_isa, current_isa, problem
from core.cpu.records import SIGNATURE
from core.cpu.tiling import split_columns, split_rows
from core.errors import DeviceError
from tests.helpers.compiled_sources import files_read_by

FULL = dict.fromkeys(("avx2", "fma", "avx512f", "avx512vl", "avx512bw", "avx512dq"), True)


def test_the_widest_level_the_processor_has_is_chosen():
    assert choose_isa("", FULL).name == "avx512"
    assert choose_isa("", {"avx2": True, "fma": True}).name == "avx2"
    assert choose_isa("", {"avx2": True, "avx512f": True}).name == "portable"
    assert choose_isa("portable", FULL).name == "portable"


def test_unknown_and_unsupported_levels_are_refused_with_a_sentence():
    with pytest.raises(DeviceError, match="LEAFCLINIC_CPU=sse9 is not one of avx512, avx2, portable"):
        choose_isa("sse9", FULL)
    with pytest.raises(DeviceError, match="has no avx512f.*Unset the variable"):
        choose_isa("avx512", {"avx2": True, "fma": True})


def test_every_source_of_code_and_numbers_of_kernels_decides_the_cache_folder():
    folder = Path(instruction_set.__file__).parent
    compiled = {file for file in folder.glob("*.py") if file.stem not in ("single", "plan")
                and re.search(r"njit|def run_|intrinsic\(", file.read_text("utf-8"))}  # fmt: skip
    missing = (compiled | files_read_by(compiled)) - {(folder / f"{name}.py").resolve() for name in KERNEL_SOURCES}
    assert not missing, "they belong to KERNEL_SOURCES"


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_any_count_of_rows_is_cut_into_three_heights(name, monkeypatch):
    monkeypatch.setattr("core.cpu.tiling.current_isa", lambda: INSTRUCTION_SETS[name])
    for vectors in INSTRUCTION_SETS[name].tile_heights:
        for count in [*range(1, 130), 997]:
            parts = split_rows.__wrapped__(count, vectors, 64)
            assert sum(h * n for h, n in parts) == count
            assert len(parts) <= 3


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize(("m", "depth"), [(0, 1), (1, 1280), (7, 160), (14, 64), (112, 16)])
def test_every_column_lies_in_one_tile_whatever_the_rows(name, m, depth, monkeypatch):
    monkeypatch.setattr("core.cpu.tiling.current_isa", lambda: INSTRUCTION_SETS[name])
    monkeypatch.setattr("core.cpu.tiling.split_rows", split_rows.__wrapped__)
    for count in [1, 6, 16, 17, 96, 160, 1280]:
        parts, first = split_columns(count, m, depth), 0
        for part in parts:
            assert part.first == first
            assert part.vectors in INSTRUCTION_SETS[name].tile_heights
            width = INSTRUCTION_SETS[name].vector_width
            assert 0 <= part.vectors * part.blocks * width - part.count < width
            first += part.count
        assert first == count


@pytest.mark.parametrize(("isa", "columns", "vectors"), [
    ("avx512", (64, 14, 384), [2]), ("avx512", (64,), [4]), ("avx2", (24, 56, 144), [3]),
    ("avx2", (64, 55, 144), [2]),  # 3, 3 and 2 would go through the image twice
    ("avx2", (1280, 7, 320), [3, 1]),  # what that saves with seven rows is more
])  # fmt: skip
def test_columns_are_split_into_the_tiles_of_least_cost(isa, columns, vectors, monkeypatch):
    monkeypatch.setattr("core.cpu.tiling.current_isa", lambda: INSTRUCTION_SETS[isa])
    monkeypatch.setattr("core.cpu.tiling.split_rows", split_rows.__wrapped__)
    assert [p.vectors for p in split_columns(*columns)] == vectors


CHECK = """
from core.cpu.instruction_set import current_isa
from core.cpu.kernel_entries import CPU
from tests.core.cpu import test_kernel_entries, test_products
from tests.helpers.shapes import cases
for op in ("conv2d", "dense", "depthwise_conv2d", "max_pool", "batch_norm"):
    for kernel in (kernel for kernel in CPU.kernels if kernel.op == op and kernel.algorithm in ("tiled", "fused")):
        for case in cases(op):
            test_kernel_entries.assert_right(kernel, case)
test_products.test_gradients_and_logits_agree_for_any_number_of_photos(test_products._perceptron, 30, 7)
print(current_isa().name)
"""


@pytest.mark.parametrize("name", [name for name in INSTRUCTION_SETS if name != current_isa().name])
def test_each_other_instruction_set_agrees_with_the_reference_on_the_odd_cases(name):
    """The processor's own has `test_kernel_entries`."""
    if problem(name, get_host_cpu_features()):
        pytest.skip(problem(name, get_host_cpu_features()))
    environment = {**os.environ, "LEAFCLINIC_CPU": name, "PYTHONPATH": os.getcwd()}
    run = subprocess.run([sys.executable, "-c", CHECK], env=environment, capture_output=True, text=True, timeout=280,
                         check=False)  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == [name]


def run_alone(record, context, photo, low, high):
    """A kernel that does nothing."""


def test_on_a_full_disk_kernels_are_compiled_and_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(instruction_set, "cache_folder", lambda: tmp_path / "kernels")
    made = cached(numba.cfunc, SIGNATURE)(run_alone)
    assert made.address
    assert [*tmp_path.rglob("*.nbc")], "else nothing is kept anyway, and the rest proves nothing"
    monkeypatch.setattr(instruction_set, "cache_folder", lambda: tmp_path / "others")
    for code in (errno.ENOSPC, errno.EFBIG):
        save = Mock(side_effect=OSError(code, os.strerror(code)))
        monkeypatch.setattr(IndexDataCacheFile, "save", save)
        assert cached(numba.cfunc, SIGNATURE)(run_alone).address
        assert save.called
    monkeypatch.setattr(IndexDataCacheFile, "save", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output error"):
        cached(numba.cfunc, SIGNATURE)(run_alone)


def test_files_of_the_cache_that_a_power_failure_truncated_are_written_again(monkeypatch, tmp_path):
    monkeypatch.setattr(instruction_set, "cache_folder", lambda: tmp_path)
    cached(numba.cfunc, SIGNATURE)(run_alone)
    for file in [*tmp_path.rglob("*.nb?")]:
        size = file.stat().st_size
        os.truncate(file, size // 2)
        assert cached(numba.cfunc, SIGNATURE)(run_alone).address
        assert file.stat().st_size == size
