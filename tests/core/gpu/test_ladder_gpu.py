"""Every teaching kernel on the GPU itself, on the whole shared list of odd cases."""

from __future__ import annotations

import numpy as np
import pytest

from core.gpu.rows.fast_rows import ROWS
from core.gpu.table import FAST, TEACHING


@pytest.mark.gpu
@pytest.mark.parametrize("op", sorted({row.op for row in TEACHING}))
def test_every_rung_agrees_with_the_reference(op):
    from tests.helpers.ladder import check

    errors = [(row, text, error) for row, text, error in check(op, 10**9)]
    assert errors
    wrong = [(row.key, text, error) for row, text, error in errors if not error <= row.tolerance.relative]
    assert not wrong, wrong


@pytest.mark.gpu
@pytest.mark.parametrize("op", sorted({row.op for row in ROWS}))
def test_every_kernel_of_the_fast_plan_agrees_with_the_reference(op):
    from tests.helpers.ladder import check

    errors = [(row, text, error) for row, text, error in check(op, 10**9, ROWS)]
    assert {row.key for row, _, _ in errors} == {row.key for row in ROWS if row.op == op}
    wrong = [(row.key, text, error) for row, text, error in errors if not error <= row.tolerance.relative]
    assert not wrong, wrong


@pytest.mark.gpu
def test_products_on_the_matrix_units_agree_with_the_reference():
    from tests.helpers.ladder import check

    errors = [(row, text, error) for row, text, error in check("matmul", 10**9, FAST)]
    assert errors
    wrong = [(row.key, text, error) for row, text, error in errors if not error <= row.tolerance.relative]
    assert not wrong, wrong


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8, 8, 8), (200, 136, 72), (129, 1000, 264), (520, 512, 512)], ids=str)
def test_every_tile_by_tma_writes_everything_and_the_same_bits_twice(shape):
    from core.gpu.compilation.cuda import cuda
    from core.gpu.compilation.hopper import CAPABILITY
    from core.gpu.sm90 import matmul_tma as engine

    if tuple(cuda.get_current_device().compute_capability) != CAPABILITY:
        pytest.skip("the copy engine's kernels are for Hopper")
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-64, 65, size).astype(np.float32) / 64 for size in ((m, k), (k, n)))  # exact in bf16
    wanted = a.astype(np.float64) @ b
    on_device = [cuda.to_device((x.view(np.uint32) >> 16).astype(np.uint16)) for x in (a, b)]
    for tile in engine.TILES:
        results = []
        for _ in range(2):
            out = cuda.to_device(np.full((m, n), 0x7FC0, np.uint16))  # NaN
            engine.multiply(*on_device, out, tile)
            results.append(out.copy_to_host())
        assert np.array_equal(*results)
        got = (results[0].astype(np.uint32) << 16).view(np.float32)
        assert np.abs(got - wanted).max() <= np.abs(wanted).max() / 256, tile
