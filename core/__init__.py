"""LeafClinic's engine: data, networks, kernels and training, without any window."""

import os
import signal
import sys
from types import FrameType

__version__ = "0.1.0"


def end_at_once(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C while a command imports its modules; `core.command_line.run_command` puts Python's handler back."""
    os._exit(130)


if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # `python -m core.X`
    signal.signal(signal.SIGINT, end_at_once)
