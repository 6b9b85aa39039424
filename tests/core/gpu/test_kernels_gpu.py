"""Every kernel entry on the GPU itself, on the whole shared list of odd cases."""

import numpy as np
import pytest

from core.config import OPTIMIZERS
from core.gpu.candidates import CANDIDATES
from core.gpu.kernel_entries import TABLE
from core.gpu.single import runner
from core.ops.registry import KernelCase
from tests.golden.cases import ON_DEVICES

pytestmark = pytest.mark.gpu
OPS = sorted({one.op for one in TABLE.kernels} - set(OPTIMIZERS))


@pytest.mark.parametrize("op", OPS)
def test_every_kernel_agrees_with_the_reference(op):
    from tests.helpers.single_kernels import check, entries, is_teaching, run_on_gpu

    found = list(check(op, 10**9, run_on_gpu))
    wrong = [(one.name, *rest) for one, *rest in found if not rest[2] <= rest[3]]
    assert not wrong, wrong
    ran = {(one.name, direction) for one, direction, *_ in found}
    missing = [one.name for one, direction in entries(op) if is_teaching(one) and (one.name, direction) not in ran]
    assert not missing, missing


@pytest.mark.parametrize("optimizer", ON_DEVICES, ids=lambda optimizer: optimizer.name)
def test_every_update_agrees_with_the_reference(optimizer):
    from tests.helpers.single_kernels import check_updates

    assert all(error <= one.tolerance for one, error in check_updates(optimizer))


@pytest.mark.parametrize("shape", [(8, 8, 8), (200, 136, 72), (129, 1000, 264), (520, 512, 512)], ids=str)
def test_every_tile_by_tma_writes_everything_and_the_same_bits_twice(shape):
    from core.gpu.compilation.cuda import cuda
    from core.gpu.sm90.matmul_tma import TILES

    candidate = next(one for one in CANDIDATES.of(("matmul",), "forward") if one.name == "tma")
    if tuple(cuda.get_current_device().compute_capability) != candidate.capability:
        pytest.skip("TMA needs compute capability 9.0")
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-64, 65, size).astype(np.float32) / 64 for size in ((m, k), (k, n)))  # exact in bf16
    wanted, problem = a.astype(np.float64) @ b, KernelCase("matmul", {}, ((m, k), (k, n)), (m, n), 1)
    for tile in TILES:
        results = []
        for _ in range(2):
            arrays = {"x": cuda.to_device(a), "x2": cuda.to_device(b)}
            arrays["out"] = cuda.to_device(np.full((m, n), np.nan, np.float32))
            runner(candidate, "forward", tile)(problem, arrays)
            results.append(arrays["out"].copy_to_host())
        assert np.array_equal(*results)
        assert np.abs(results[0] - wanted).max() <= np.abs(wanted).max() / 256, tile
