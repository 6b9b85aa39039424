"""Whether the library of the NVIDIA driver is installed. Imports no CUDA package, which is slow."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

NO_DRIVER: Final = (
    "There is no NVIDIA driver on this machine. Install the driver for your GPU from nvidia.com/drivers."
)
_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def has_library() -> bool:
    """Load the driver's library by the name that `cuda.bindings` uses; False where there is none."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True
