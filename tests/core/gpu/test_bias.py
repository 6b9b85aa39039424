"""The bias from both memories: right in the simulator, and where the compiler says that it reads it."""

import os
import subprocess
import sys

import numpy as np

from core.gpu.ops.elementwise.constant_bias import from_global, make_from_constant
from tests.helpers.commands import ROOT
from tests.helpers.resources import kernel_ptx

SIMULATED = """
import numpy as np
from core.gpu.ops.elementwise.constant_bias import from_global, make_from_constant
x, bias = np.arange(12, dtype=np.float32), np.float32([100, 200, 300])
for pixels in (1, 4):
    wanted = x + bias[np.arange(12) // pixels % 3]
    for run in (lambda out: from_global[1, 16](x, bias, out, 3, pixels),
                lambda out: make_from_constant(bias)[1, 16](x, out, 3, pixels)):
        out = np.full(12, np.nan, np.float32)
        run(out)
        assert np.array_equal(out, wanted), (pixels, out)
print("right")
"""


def test_the_bias_reaches_its_channel_in_both_orders():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SIMULATED], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.stdout.strip() == "right", done.stderr[-2000:]


def test_each_kernel_reads_the_memory_it_is_named_after():
    assert "ld.const" not in kernel_ptx(from_global, (9, 0))
    assert "ld.const" in kernel_ptx(make_from_constant(np.ones(32, np.float32)), (9, 0))
