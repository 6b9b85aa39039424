"""One kernel launch as data, and the arrays it works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from core.gpu.compiler import Recipe


@final
@dataclass(frozen=True, slots=True)
class Tensor:
    """Activations ``(N, height, width, channels)`` on the device; pitches in elements, channels padded to 16 bytes."""

    address: int
    height: int
    width: int
    channels: int
    pitch: int
    element: int
    row: int = 0
    photo: int = 0

    @property
    def row_pitch(self) -> int:
        return self.row or self.width * self.pitch

    @property
    def photo_pitch(self) -> int:
        return self.photo or self.height * self.row_pitch

    @property
    def vector(self) -> int:
        """Elements in 16 bytes."""
        return 16 // self.element

    @property
    def padded(self) -> int:
        """Channels up to the next multiple of 16 bytes."""
        return -(-self.channels // self.vector) * self.vector


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """What to run: kernel, grid, block, dynamic shared memory and arguments; and what it is called in timings.

    `lane` 1 may run beside lane 0; it starts after every lane-0 launch before it.
    """

    layer: str
    direction: str
    kernel: str
    recipe: Recipe
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    values: tuple[Any, ...]
    flops: int = 0
    bytes: int = 0
    lane: int = 0


def blocks_of(count: int, size: int) -> int:
    """Blocks of `size` that cover `count`."""
    return -(-count // size)
