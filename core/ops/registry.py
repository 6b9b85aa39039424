"""The registry of kernels: op, device, algorithm, and the cases that each kernel refuses.

A kernel runs or refuses with a sentence; it never becomes another one. `Registry.choose` takes the last kernel in
`ALGORITHM_ORDER`, up to the requested level, that does not refuse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from core.errors import KernelUnavailable
from core.graph import Attributes, Shape

ALGORITHM_ORDER: Final = (
    "reference", "naive", "vectorised", "vectorised_parallel", "shared", "im2col", "im2col_parallel", "winograd",
    "winograd_f4", "fft", "fft_tiled", "tiled", "tiled_vectorised", "double_buffered", "warp_tiled", "narrow",
    "tensor_core", "tma", "fused",
)
"""Algorithms from the simplest to the fastest."""

VENDOR_LIBRARIES: Final = ("cublas", "cudnn")
"""Baselines for comparison, never chosen by "auto"."""


def rank(algorithm: str) -> int:
    """Return the place in `ALGORITHM_ORDER`; other names, such as "auto", follow, then the libraries."""
    if algorithm in ALGORITHM_ORDER:
        return ALGORITHM_ORDER.index(algorithm)
    return len(ALGORITHM_ORDER) + (algorithm in VENDOR_LIBRARIES)


@dataclass(frozen=True, slots=True)
class KernelCase:
    """The problem that a kernel solves: everything but the arrays."""

    op: str
    attributes: Attributes
    inputs: tuple[Shape, ...]
    output: Shape
    batch: int
    activation: str = ""
    precision: str = "float32"

    @property
    def names(self) -> tuple[str, ...]:
        """Roles of the inputs."""
        return tuple(numbered("x", k) for k in range(len(self.inputs)))


def numbered(name: str, k: int) -> str:
    """Role of the k-th input: x, x2, x3 ..."""
    return name if k == 0 else f"{name}{k + 1}"


Refusal: TypeAlias = Callable[[KernelCase], str]
"""Returns the reason against a case as a sentence, or ""."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One algorithm for one direction of one op on one device.

    `run(case, arrays)` computes on host arrays from the dict `arrays` (`x`, `weight`, `bias`, `dy`,
    ... in; `out`, `dx`, `dweight`, `dbias` ... written in place), for tests and the laboratory.
    `writers`: how a CPU plan runs it (`core.cpu.lowering.Writers`); None: CPU plans do not use it.
    `idea` is one line for tables and tooltips. `tolerance`: largest error ``|got - want| / max|want|`` against float64.
    """

    op: str
    direction: str
    device: str
    algorithm: str
    run: Callable[[KernelCase, dict[str, Any]], None]
    idea: str
    tolerance: float = 1e-5
    refuses: Refusal = lambda case: ""
    writers: Any = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.op, self.direction, self.device, self.algorithm)


class Registry:
    """All kernels of one device, in reading order. Raises ValueError for one listed twice or, of plans, not ordered."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self.kernels = tuple(kernels)
        if twice := [key for key, count in Counter(kernel.key for kernel in self.kernels).items() if count > 1]:
            raise ValueError(f"kernels listed twice: {twice}")
        if unknown := [k.key for k in self.kernels if k.writers is not None and k.algorithm not in ALGORITHM_ORDER]:
            raise ValueError(f"Plans choose kernels by their place in ALGORITHM_ORDER. Add the algorithm of {unknown}.")

    def of(self, op: str, direction: str) -> tuple[Kernel, ...]:
        """Return the kernels of one op and direction, simplest first."""
        found = [k for k in self.kernels if (k.op, k.direction) == (op, direction)]
        return tuple(sorted(found, key=lambda kernel: rank(kernel.algorithm)))

    def choose(self, case: KernelCase, direction: str, algorithm: str = "auto") -> Kernel:
        """Return the highest level up to the named one that does not refuse, as `core.gpu.select` does; of a single
        kernel, that one. Raises KernelUnavailable."""
        kernels, reasons = self.of(case.op, direction), []
        highest = rank(algorithm)
        for kernel in reversed(kernels):
            if len(kernels) > 1 and rank(kernel.algorithm) > highest:
                continue
            reason = kernel.refuses(case)
            if not reason:
                return kernel
            reasons.append(f"{kernel.algorithm}: {reason}")
        raise KernelUnavailable(" ".join([f"No kernel up to {algorithm!r} runs {case.op} {direction}.", *reasons]))
