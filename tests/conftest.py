"""What every test shares: the compiled kernels, one thread for NumPy's products, and who runs beside whom."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from core.cores import usable_cores
from core.user_cache import user_kernel_folder

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Before NumPy is loaded. OpenBLAS' threads wait for work by spinning, which is slow on busy cores."""
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # tests that a shell starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Programs that tests start in a home of their own, and other processes, find the kernels compiled before."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(user_kernel_folder()))
    if config.getoption("dist", "no") == "loadgroup" and not hasattr(config, "workerinput"):
        from core.cpu.precompilation import all_kernels, compile_kernels  # imports Numba

        compile_kernels(all_kernels(), lambda done, total: None)  # else each of the first tests compiles them


LONG = ("tests/e2e/test_no_network.py", "tests/core/gpu/test_fast_ptx.py", "tests/core/gpu/test_teaching_ptx.py",
        "tests/core/gpu/test_teaching_kernels.py", "tests/core/cpu/test_instruction_set.py",
        "tests/core/distributed/test_ranks.py", "tests/core/gpu/test_sm90_pointwise.py", "tests/core/gpu/test_pdl.py",
        "tests/core/gpu/test_turing.py", "tests/core/training/test_memory.py")  # fmt: skip
"""Files that take longest for their number of tests: started late, they would leave the other processes idle."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more process than cores (`-n auto`): many tests wait for processes that they have started."""
    return usable_cores() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Side by side (`--dist loadgroup`) the tests of a file stay in one process, and the window's all in one.

    Qt has one application a process; with its tests in two, one ended in a segmentation fault. A scheduler says so
    because pytest-xdist 3.8 passes groups on as suffixes of test names, which pytest 9.2 no longer lets it write.
    """
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadgroup":  # the GPU's tests: `benchmarks.gpu_tests`
        return None
    config.option.loadscopereorder = False  # see `pytest_collection_modifyitems`

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return "window" if is_window(file) else file

    return Scheduler(config, log)


def is_window(file):
    return file.startswith("tests/app/") or Path(file).name.startswith("test_window")


def pytest_collection_modifyitems(config, items):
    """Side by side the window's tests begin, then the other files from the longest on."""
    if not hasattr(config, "workerinput"):
        return
    count = Counter(item.nodeid.split("::")[0] for item in items)
    order = {file: (not is_window(file), LONG.index(file) if file in LONG else len(LONG), -count[file])
             for file in count}  # fmt: skip
    items.sort(key=lambda item: order[item.nodeid.split("::")[0]])
