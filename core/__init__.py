"""LeafClinic's engine: data, networks, kernels and training, without the window."""

import json
import os
import signal
import sys
from types import FrameType
from typing import Final

__version__ = "0.1.0"


def end_at_once(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C while a command or the window imports its modules; what is imported then sets its own handler."""
    os._exit(130)


LEAST_ADDRESSES: Final = 1_000_000_000
"""Bytes; a diagnosis takes 900 MB, most of it mapped libraries."""


def address_limit() -> str:
    """Why the limit of address space is too low to start, "" if it is not: LLVM would end the process silently."""
    if sys.platform == "win32":
        return ""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESSES:
        return ""
    return (f"Address space is limited to {limit / 1e6:.0f} MB here; LeafClinic needs {LEAST_ADDRESSES / 1e6:.0f} MB. "
            "Raise the limit: ulimit -v unlimited.")  # fmt: skip


def variable_problem() -> str:
    """Which variable keeps the kernels from being compiled, "" if none does: Numba would end in a traceback."""
    for name, works in (("NUMBA_DISABLE_JIT", range(1)), ("NUMBA_NUM_THREADS", range(1, 1 << 20))):
        value = os.environ.get(name, "")
        if value.lstrip("-").isdecimal() and int(value) not in works:  # Numba ignores what is no number
            return f"{name}={value} keeps Numba from compiling the kernels. Unset this variable."
    return ""


def print_error(message: str, exit_code: int) -> None:
    """Print why a command cannot start, as it prints its own errors: with ``--json`` also for programs."""
    sys.stderr.write(message + "\n")
    words = sys.orig_argv
    module = words[words.index("-m") + 1] if "-m" in words else "app"
    command = "".join(sys.argv[1:2]) if module == "app" else module.removeprefix("core.")
    if "--json" in sys.argv and command != "lab":  # there it takes a file
        failed = {"event": "RunFailed", "message": message, "details": ""} if command == "train" else {"error": message}
        sys.stdout.write(json.dumps({**failed, "exit_code": exit_code}) + "\n")


_PROGRAM = sys.argv[0] if sys.argv else ""
if "--multiprocessing-fork" in sys.orig_argv:  # a process of our program is ended by it, which Ctrl-C reaches too
    if os.path.dirname(os.path.dirname(_PROGRAM)) == os.path.dirname(os.path.dirname(__file__)):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
elif os.path.basename(_PROGRAM).startswith(("-m", "leafclinic")):  # -m: the package is imported before its name is set
    if _PROBLEM := address_limit() or variable_problem():
        print_error(_PROBLEM, 2)
        sys.exit(2)  # wrong input
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
