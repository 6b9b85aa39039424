"""The shape of a block of the small-batch convolutions, and whether its operands fit into registers."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Final, final

VECTOR: Final = 8
"""bf16 elements in 16 bytes."""
CHUNK: Final = 4
"""Vectors of the sum's depth that one warp multiplies at a time: one for each lane of a quad, two `mma` deep."""
PADDING: Final = 8
"""Floats behind a row of sums, against bank conflicts."""
REGISTERS, MOST_REGISTERS = 65536, 230
"""Registers of a multiprocessor, and of a thread at most."""
OTHER_REGISTERS: Final = 60
"""Registers of a thread that hold neither operands nor sums."""


@final
@dataclass(frozen=True, slots=True)
class BlockShape:
    """`across` x `slices` warps; each has `rows` x `columns` fragments of 16 pixels x 8 filters.

    Warps across have filters of their own; slices split the depth of the same sums (split-K within the block).
    """

    rows: int
    columns: int
    across: int
    slices: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields, for a recipe."""
        return astuple(self)

    @property
    def threads(self) -> int:
        return 32 * self.across * self.slices

    @property
    def size(self) -> tuple[int, int]:
        """Pixels and filters of a block."""
        return 16 * self.rows, VECTOR * self.columns * self.across

    @property
    def rounds(self) -> int:
        """Vectors of the output that a thread writes."""
        return -(-self.size[0] * self.size[1] // VECTOR // self.threads)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: the sums of all slices, ``(slices, pixels, filters + PADDING)`` float32."""
        tall, wide = self.size
        return 4 * self.slices * tall * (wide + PADDING)

    def turns(self, vectors: int) -> int:
        """Chunks of a warp, for a sum of so many vectors."""
        return -(-vectors // (CHUNK * self.slices))

    def suits(self, vectors: int) -> bool:
        """Whether the operands of such a sum fit into the registers and the sums into shared memory."""
        held = self.turns(vectors) * (8 * self.rows + 4 * self.columns) + 4 * self.rows * self.columns
        registers = (held + OTHER_REGISTERS) * self.threads
        return held + OTHER_REGISTERS <= MOST_REGISTERS and registers <= REGISTERS and self.shared <= 48 << 10
