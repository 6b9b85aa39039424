"""Candidates for the matrix product ``out = x x2``, simplest first: measured by itself, no network has it as a step."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.matmul import narrow, tensor_core, tiled, warp_tiled
from core.gpu.select import BF16, FORWARD, Candidate
from core.gpu.teaching.candidates import teach

OP: Final = "matmul"

CANDIDATES: Final = (
    teach("naive", OP, FORWARD, tiled.launch_naive, "one thread per element"),
    teach("shared", OP, FORWARD, tiled.launch_tiles(tiled.shared, tiled.SIDE), "16 x 16 tiles in shared memory"),
    teach("tiled", OP, FORWARD, tiled.launch_tiles(tiled.tiled, tiled.TILE),
          "128 x 128 outputs per block, 8 x 8 sums per thread in registers", level="shared"),
    teach("tiled_vectorised", OP, FORWARD, tiled.launch_flat(tiled.tiled_vectorised), "the same with 16-byte accesses",
          tiled.refuse_unaligned, "shared"),
    teach("double_buffered", OP, FORWARD, tiled.launch_flat(tiled.double_buffered),
          "the next tile is loaded while this one is multiplied", tiled.refuse_unaligned, "shared"),
    teach("warp_tiled", OP, FORWARD, warp_tiled.launch,
          "8 x 16 sums per thread, a tile per warp, no bank conflicts",
          tiled.refuse_unaligned, "shared"),
    teach("narrow", OP, FORWARD, narrow.launch, "a depth of at most 32 is loaded at once, 4 x 4 sums per thread",
          narrow.refuse, "shared"),
    Candidate("tensor_core", (OP,), FORWARD, tensor_core.write, "bf16 through cp.async and mma.sync, float32 sums",
              refuses=tensor_core.refuse, capability=(8, 0), arithmetics=BF16),
)  # fmt: skip
