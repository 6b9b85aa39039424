"""What every test shares: the compiled kernels."""

import os

from core.data.places import user_cache_folder


def pytest_configure():
    """Programs that tests start in a home of their own still find the kernels compiled before, by whichever test."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(user_cache_folder() / "kernels"))
