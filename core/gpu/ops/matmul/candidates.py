"""Candidates for the matrix product ``out = x x2``, simplest first: for the laboratory, no network has it as a step."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.matmul import cublas, narrow, tensor_core, tiled, warp_tiled
from core.gpu.ops.matmul.tiled import FACTORS, SIDE, TILE, tiles
from core.gpu.select import BF16, FORWARD, Candidate
from core.gpu.teaching.candidates import by_names, per_element, teach

OP: Final = "matmul"

CANDIDATES: Final = (
    teach("naive", OP, FORWARD, by_names(tiled.naive, per_element, **FACTORS), "one thread per element"),
    teach("shared", OP, FORWARD, by_names(tiled.shared, tiles(SIDE), **FACTORS), "16 x 16 tiles in shared memory"),
    teach("tiled", OP, FORWARD, by_names(tiled.tiled, tiles(TILE), **FACTORS),
          "128 x 128 outputs per block, 8 x 8 sums per thread in registers", level="shared"),
    teach("tiled_vectorised", OP, FORWARD, by_names(tiled.tiled_vectorised, tiles(TILE), **FACTORS),
          "the same with 16-byte accesses", tiled.refuse_unaligned, "shared"),
    teach("double_buffered", OP, FORWARD, by_names(tiled.double_buffered, tiles(TILE), **FACTORS),
          "the next tile is loaded while this one is multiplied", tiled.refuse_unaligned, "shared"),
    teach("warp_tiled", OP, FORWARD, warp_tiled.launch,
          "8 x 16 sums per thread, a tile per warp, no bank conflicts",
          tiled.refuse_unaligned, "shared"),
    teach("narrow", OP, FORWARD, by_names(narrow.narrow, narrow.tiles, **FACTORS),
          "a depth of at most 32, all loads at once, 4 x 4 sums per thread",
          narrow.refuse, "shared"),
    teach("cublas", OP, FORWARD, cublas.launch_product, "the vendor's library, float32", cublas.refuse),
    Candidate("tensor_core", (OP,), FORWARD, tensor_core.write, "bf16 through cp.async and mma.sync, float32 sums",
              refuses=tensor_core.refuse, capability=(8, 0), arithmetics=BF16),
)  # fmt: skip
