"""What every test shares: the compiled kernels, one thread for NumPy's products, and who runs beside whom."""

import os
from pathlib import Path

import pytest

from core.user_cache import user_kernel_folder

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Before NumPy is loaded. OpenBLAS' threads wait for work by spinning: on two busy cores `test_network.py` took 184
instead of 37 s with two."""


def pytest_configure():
    """Programs that tests start in a home of their own still find the kernels compiled before, by whichever test.

    So do processes that test side by side: of each function there is one compiled form, which they write alike.
    """
    os.environ.setdefault("NUMBA_CACHE_DIR", str(user_kernel_folder()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Side by side (`--dist loadgroup`) the tests of a file stay in one process, and the window's all in one.

    Qt has one application a process, and what one test of the window leaves in it the next one finds: out of their
    order, with some taken over by another process, one ended in a segmentation fault.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        file = item.path.relative_to(Path(__file__).parent)
        window = file.parts[0] == "app" or file.name.startswith("test_window")
        item.add_marker(pytest.mark.xdist_group("window" if window else file.as_posix()))
