"""LeafClinic's engine: data, networks, kernels and training, without any window."""

import os
import signal
import sys
from types import FrameType

__version__ = "0.1.0"


def end_at_once(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C while a command or the window imports its modules; what is imported then sets its own handler."""
    os._exit(130)


_PROGRAM = os.path.basename(sys.argv[0]) if sys.argv else ""
"""Of `python -m core.X` and `python -m app`, Python has set "-m" at this moment."""
if _PROGRAM.startswith(("-m", "leafclinic")) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_at_once)
