"""What every test shares: the compiled kernels."""

import os

from core.user_cache import user_kernel_folder


def pytest_configure():
    """Programs that tests start in a home of their own still find the kernels compiled before, by whichever test."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(user_kernel_folder()))
