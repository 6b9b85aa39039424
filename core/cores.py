"""How many cores this process may use: fewer than the machine has where a batch system or a container says so."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """1 or more. A thread keeps gradients and buffers of its own: 64 threads instead of 2 took SqueezeNet's run from
    92 to 802 MB and made nothing faster."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
