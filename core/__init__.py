"""LeafClinic's engine: data, networks, kernels and training, without any window."""

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
    """Why the limit of address space is too low to start ("" if it is not): LLVM would end the process without a
    message."""
    if sys.platform == "win32":
        return ""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESSES:
        return ""
    return (f"Address space is limited to {limit / 1e6:.0f} MB here; LeafClinic needs {LEAST_ADDRESSES / 1e6:.0f} MB. "
            "Raise the limit: ulimit -v unlimited.\n")  # fmt: skip


_PROGRAM = os.path.basename(sys.argv[0]) if sys.argv else ""
"""Of `python -m core.X` and `python -m app`, Python has set "-m" at this moment."""
if _PROGRAM.startswith(("-m", "leafclinic")):
    if _LIMIT := address_limit():
        sys.stderr.write(_LIMIT)
        sys.exit(2)  # wrong input
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
