"""Properties of a GPU that kernels depend on, its peak rates, and its identity."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Final

from core.errors import DeviceError
from core.gpu.compilation.generations import AMPERE, HOPPER, Capability

MATRIX_RATE: Final[dict[Capability, int]] = {
    (7, 5): 2048, (8, 0): 2048, (8, 6): 512, (8, 9): 512, (9, 0): 4096, (10, 0): 8192, (12, 0): 512,
}  # fmt: skip
"""bf16 operations per clock and multiprocessor on the tensor cores, summed in float32, by compute capability.

Peak rate over multiprocessors and boost clock. 8.6, 8.9 and 12.0 are GeForce cards: RTX 3090 71, RTX 4090 165 and RTX
5090 209.5 TFLOP/s (a quarter of the 838 with sparsity and float16 sums), 512 per clock each. Source: data sheets, as
listed by waredb.com (RTX 4090) and spheron.network (RTX 5090); NVIDIA's architecture papers for A100, H100 and B200.
7.5 has no bf16: the figure is that of `SLOWER["fma"]`, 64 multiply-adds per clock.
"""

SLOWER: Final = {"bf16": 1, "tf32": 2, "float32": 6, "fma": 16}
"""How many times slower than `MATRIX_RATE` an arithmetic is; float32 is three tf32 products."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Compute capability, multiprocessors, bytes of shared memory per block, clock in Hz, bytes/s of memory."""

    capability: Capability
    processors: int
    shared: int
    clock: float
    bandwidth: float

    @property
    def kernel_capability(self) -> Capability:
        """The highest capability of candidates that may run: those for Hopper run on no other GPU."""
        return HOPPER if self.capability == HOPPER else min(self.capability, AMPERE)

    def rate(self, arithmetic: str) -> float:
        """Peak FLOP/s of the tensor cores, for "fma" of multiply-adds."""
        known = max(c for c in MATRIX_RATE if c <= self.capability)
        return MATRIX_RATE[known] * self.processors * self.clock / SLOWER[arithmetic]

    def floor(self, flops: float, moved: float, arithmetic: str) -> float:
        """Roofline: seconds at the peak rate or at the peak bandwidth, whichever is longer."""
        return max(flops / self.rate(arithmetic), moved / self.bandwidth)


@dataclass(frozen=True, slots=True)
class Identity:
    """Name and compute capability of a GPU, and its driver's CUDA version."""

    name: str
    capability: tuple[int, int]
    driver: str


TYPICAL: Final = {
    "T4": Hardware((7, 5), 40, 64 << 10, 1.59e9, 0.32e12),
    "A100": Hardware((8, 0), 108, 163 << 10, 1.41e9, 1.555e12),
    "RTX 3090": Hardware((8, 6), 82, 99 << 10, 1.695e9, 0.936e12),
    "RTX 4090": Hardware((8, 9), 128, 99 << 10, 2.52e9, 1.008e12),
    "H200": Hardware((9, 0), 132, 227 << 10, 1.83e9, 4.8e12),
    "B200": Hardware((10, 0), 148, 227 << 10, 1.85e9, 8.0e12),
    "RTX 5090": Hardware((12, 0), 170, 99 << 10, 2.407e9, 1.792e12),
}
"""A typical GPU of each compute capability, oldest first. Source: NVIDIA's data sheets."""


def typical(capability: Capability = HOPPER) -> Hardware:
    """The typical GPU of a capability. Raises DeviceError for a capability without kernels."""
    known = [hardware for hardware in TYPICAL.values() if hardware.capability <= capability]
    if not known:
        raise DeviceError(f"Compute capability {capability[0]}.{capability[1]} is too old: 7.5 is the first.")
    return known[-1]


NO_DRIVER: Final = "There is no NVIDIA driver on this machine. Install the driver for your GPU from nvidia.com/drivers."


def has_driver() -> bool:
    """Whether the library of the NVIDIA driver is installed, without importing CUDA packages, which is slow."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")  # the names that cuda.bindings uses
    except OSError:
        return False
    return True
