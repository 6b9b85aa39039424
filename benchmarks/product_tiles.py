"""Which tile the bf16 product should take at which size: every tile beside cuBLAS on a Hopper, each checked first.

    python -m benchmarks.product_tiles [--sizes 768 1536 3072] [--machine h200]

About 25 s, most of it the compilation of fifteen kernels. Shares of cuBLAS are printed as a table; the costs
in `matmul_tma.py` are made from them. A tile "*2" has two blocks on every multiprocessor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.clock import Clock
from benchmarks.record import make_row, write_results
from core.gpu.compilation.cuda import cuda
from core.gpu.driver.hosted import blocks, stream_address
from core.gpu.sm90.matmul_tma import TILES, Tile, load
from core.gpu.sm90.tma import encode_map
from core.gpu.sm90.wgmma import DEPTH

SIZES = (512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096)
TRIED = (
    *((tile, 1) for tile in TILES),
    (Tile(2, 64, 8), 1), (Tile(3, 128, 4), 1), (Tile(1, 256, 4), 1), (Tile(1, 192, 4), 1), (Tile(1, 128, 4), 2),
    (Tile(2, 64, 4), 2), (Tile(1, 64, 4), 2), (Tile(1, 192, 2), 2), (Tile(2, 128, 2), 2),
)  # fmt: skip
"""Tiles, and blocks of each on a multiprocessor: those of `choose`, then those that were the fastest nowhere."""


def multiply(tile: Tile, resident: int, a: Any, b: Any, c: Any) -> None:
    """`matmul_tma.multiply` with a tile and so many blocks on a multiprocessor."""
    (m, k), n = a.shape, b.shape[1]
    at = [int(x.__cuda_array_interface__["data"][0]) for x in (a, b, c)]
    maps = encode_map(at[0], m, k, tile.rows), encode_map(at[1], k, n, DEPTH)
    down, across = blocks(m, tile.rows), blocks(n, tile.columns)
    grid = min(down * across, resident * cuda.get_current_device().MULTIPROCESSOR_COUNT)
    values = (*maps, at[2], m, n, k, down, across)
    load(tile).launch((grid, 1, 1), (tile.threads, 1, 1), tile.shared, stream_address(), values)


def rates(clock: Clock, side: int) -> tuple[dict[str, float], float]:
    """TFLOP/s of every tile and of cuBLAS. Raises AssertionError where a product is wrong."""
    a, b = (torch.randn(side, side, device="cuda").bfloat16() for _ in range(2))
    out = torch.empty(side, side, device="cuda", dtype=torch.bfloat16)
    bits = [cuda.as_cuda_array(t.view(torch.int16)).view(np.uint16) for t in (a, b, out)]
    wanted = torch.mm(a, b).float()
    ways: dict[str, Callable[[], Any]] = {}
    for tile, resident in TRIED:
        name = f"{tile.rows}x{tile.columns}/{tile.stages}" + (f"*{resident}" if resident > 1 else "")
        ways[name] = partial(multiply, tile, resident, *bits)
        out.fill_(float("nan"))
        torch.cuda.synchronize()
        ways[name]()
        torch.cuda.synchronize()
        error = float((out.float() - wanted).norm() / wanted.norm())
        assert error < 1e-2, (name, side, error)
    times = clock.by_turns({**ways, "cublas": partial(torch.mm, a, b, out=out)})
    found = {way: 2 * side**3 / ms / 1e9 for way, ms in times.items()}
    return found, found.pop("cublas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    parser.add_argument("--machine", default="h200", help="short name of the machine, for the file")
    options = parser.parse_args()
    clock, rows, all_rates = Clock(), [], {}
    for side in options.sizes:
        found, peer = rates(clock, side)
        best = max(found, key=found.__getitem__)
        print(f"{side:5}: cuBLAS {peer:.0f} TFLOP/s; best {best}; shares of cuBLAS: "
              + ", ".join(f"{way} {100 * rate / peer:.0f} %" for way, rate in found.items()), flush=True)
        rows.append(make_row(f"matmul bf16 {side} {best}", found[best], {"cublas": peer}, "TFLOP/s"))
        all_rates[str(side)] = found
    write_results("product_tiles", rows, options.machine, rates=all_rates)


if __name__ == "__main__":
    main()
