"""The kernels with a bias in constant memory: right in the simulator, and constant in their PTX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from core.gpu.compilation.cuda import compile_to_ptx, types
from core.gpu.kernels.ladder.bias_memory import make_depthwise, make_pointwise

ROOT = Path(__file__).parents[3]

PROGRAM = """
import numpy as np
from core.gpu.kernels.ladder.bias_memory import make_depthwise, make_pointwise
from core.ops.op_table import OPS
from core.ops.contract import Mode
draw = np.random.default_rng(0)
bias = draw.standard_normal(3, np.float32)
x, w = draw.standard_normal((2, 4, 5, 3), np.float32), draw.standard_normal((3, 3, 3, 1), np.float32)
attributes = {**OPS["depthwise_conv2d"].defaults, "kernel": (3, 3), "padding": (1, 1, 1, 1), "bias": True}
wanted = OPS["depthwise_conv2d"].forward(attributes, [x.astype(float)], {"weight": w, "bias": bias}, Mode()).output
p, v = draw.standard_normal((4, 11), np.float32), draw.standard_normal((3, 4), np.float32)
for constant in (None, bias):
    out = np.full(x.shape, np.nan, np.float32)
    make_depthwise(constant)[4, 32](x, w, bias, out)
    assert np.abs(out - wanted).max() < 1e-5
    out = np.full((3, 11), np.nan, np.float32)
    make_pointwise(constant)[(1, 3), 32](p, v, bias, out)
    assert np.abs(out - (v @ p + bias[:, None])).max() < 1e-5
"""


def test_both_kernels_are_right_with_either_bias():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("make", [make_depthwise, make_pointwise])
def test_the_constant_bias_lies_in_constant_memory(make):
    array = types.Array
    rank = 4 if make is make_depthwise else 2
    kinds = (array(types.float32, rank, "C"), array(types.float32, rank, "C"), array(types.float32, 1, "C"),
             array(types.float32, rank, "C"))  # fmt: skip
    for constant in (None, np.ones(8, np.float32)):
        ptx, _ = compile_to_ptx(make(constant).py_func, kinds, (9, 0), None)
        assert (".const" in ptx) == (constant is not None)
