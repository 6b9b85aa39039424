"""Which GPU it is, for what was measured on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """A GPU by name and compute capability, and the version of CUDA that its driver brings."""

    name: str
    capability: tuple[int, int]
    driver: str
