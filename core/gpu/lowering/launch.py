"""One kernel launch as data, and the arrays it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from core.gpu.compilation.compiler import Recipe

RELU: Final = {"": 0, "relu": 1, "relu6": 2}
"""An activation as the kernels' arguments say it."""


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

    `lane` 1 may run beside lane 0; it starts after every lane-0 launch before it. `join` waits for all of lane 1.
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
    join: bool = False
    early: bool = False
    """Whether it may start before the launch in front of it has ended (`core.gpu.compilation.early`)."""


WINDOW: Final = 6
"""Lane 0 waits for lane 1's work of two windows ago; a window is so many launches of lane 0."""


def windows_of(launches: Sequence[Launch]) -> list[int]:
    """The window of each launch: what lane 1 does in window w is done before lane 0 begins window w + 2."""
    found, count = [], 0
    for launch in launches:
        count += launch.lane == 0
        found.append(count // WINDOW)
    return found


def blocks_of(count: int, size: int) -> int:
    """Blocks of `size` that cover `count`."""
    return -(-count // size)
