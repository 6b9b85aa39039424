"""What every test shares: the compiled kernels, and one thread for NumPy's products."""

import os

from core.user_cache import user_kernel_folder

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Before NumPy is loaded. OpenBLAS' threads wait for work by spinning: on two busy cores `test_network.py` took 184
instead of 37 s with two."""


def pytest_configure():
    """Programs that tests start in a home of their own still find the kernels compiled before, by whichever test.

    So do processes that test side by side: of each function there is one compiled form, which they write alike.
    """
    os.environ.setdefault("NUMBA_CACHE_DIR", str(user_kernel_folder()))
