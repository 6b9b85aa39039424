"""Which tile the bf16 product should take at which size: every tile beside cuBLAS on a Hopper, each checked first.

    python -m benchmarks.product_tiles [--sizes 768 1536 3072] [--machine h200]

About 25 s, most of it the compilation of ten kernels. Shares of cuBLAS are printed as a table; the costs
in `matmul_tma.py` are made from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.clock import Clock
from benchmarks.pytorch import torch
from benchmarks.record import make_row, write_results
from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.cuda import cuda
from core.gpu.single import runner
from core.gpu.sm90.matmul_tma import TILES, MatmulTile
from core.ops.registry import KernelCase

SIZES = (512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096)
TRIED = (
    *TILES, MatmulTile(2, 64, 8), MatmulTile(3, 128, 4), MatmulTile(1, 256, 4), MatmulTile(1, 192, 4),
)  # fmt: skip
"""Tiles: those of `choose`, then those that were the fastest nowhere."""


def rates(clock: Clock, side: int) -> tuple[dict[str, float], float]:
    """TFLOP/s of every tile and of cuBLAS. Raises AssertionError where a product is wrong."""
    a, b = (torch.randn(side, side, device="cuda").bfloat16() for _ in range(2))
    out = torch.empty(side, side, device="cuda", dtype=torch.bfloat16)
    bits = [cuda.as_cuda_array(t.view(torch.int16)).view(np.uint16) for t in (a, b, out)]
    wanted = torch.mm(a, b).float()
    ways: dict[str, Callable[[], Any]] = {}
    candidate = next(row for row in CANDIDATES.of(("matmul",), "forward") if row.name == "tma")
    case = KernelCase("matmul", {}, ((side, side), (side, side)), (side, side), 1)
    for tile in TRIED:
        name = f"{tile.rows}x{tile.columns}/{tile.stages}"
        arrays = dict(zip(("x", "x2", "out"), bits, strict=True))
        ways[name] = partial(runner(candidate, "forward", tile), case, arrays)
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
