"""Python programs in several ranks, started by the Open MPI of the package `openmpi`."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution

from tests.helpers.commands import ROOT, environment


def find_mpirun():
    """Of the package `openmpi`, which need not belong to the environment that runs the tests."""
    try:
        files = distribution("openmpi").files or ()
    except PackageNotFoundError:
        return None
    return next(str(file.locate().resolve()) for file in files if file.name == "mpirun")


MPIRUN = find_mpirun()
ROOT_ALLOWED = {f"{name}_ALLOW_RUN_AS_ROOT{end}": "1" for name in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}


def start(count, *arguments, cache, **more):
    command = [MPIRUN, "--oversubscribe", "--bind-to", "none", "-n", str(count), sys.executable, *map(str, arguments)]
    here = {**environment(cache), **ROOT_ALLOWED, "NUMBA_NUM_THREADS": "1", **more}
    return subprocess.Popen(command, cwd=ROOT, env=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
