"""What every test shares: the compiled kernels, and one thread for NumPy's products."""

import os
from pathlib import Path

from core.user_cache import user_kernel_folder

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Before NumPy is loaded. OpenBLAS' threads wait for work by spinning: on two busy cores `test_network.py` took 184
instead of 37 s with two."""


def pytest_configure():
    """Programs that tests start in a home of their own still find the kernels compiled before, by whichever test.

    Of processes that test side by side each has its own: Numba's index of what it keeps is not made for two writers.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    os.environ["NUMBA_CACHE_DIR"] = str(Path(os.environ.get("NUMBA_CACHE_DIR") or user_kernel_folder()) / worker)
