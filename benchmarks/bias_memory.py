"""Bias from constant and from global memory at (1,32,122,122), by turns on one GPU: microseconds.

    python -m benchmarks.bias_memory
"""

from __future__ import annotations

import numpy as np

from benchmarks.clock import Clock
from benchmarks.record import Row, make_row, print_table
from core.gpu.cuda import cuda
from core.gpu.hosted import at
from core.gpu.kernels.bias_memory import make_depthwise, make_pointwise

SIDE, CHANNELS, THREADS = 122, 32, 256


def measure() -> list[Row]:
    """Ours from constant memory, the peer the same kernel from global memory."""
    draw, clock, rows = np.random.default_rng(0), Clock(), []
    pixels = SIDE * SIDE

    def made(*shape: int) -> object:
        return cuda.to_device(draw.standard_normal(shape, np.float32))

    bias = draw.standard_normal(CHANNELS, np.float32)
    shapes = {
        "depthwise": ((1, SIDE, SIDE, CHANNELS), (CHANNELS, 3, 3, 1), (-(-pixels * CHANNELS // THREADS),)),
        "pointwise": ((CHANNELS, pixels), (CHANNELS, CHANNELS), (-(-pixels // THREADS), CHANNELS)),
    }
    for name, (shape, weight, grid) in shapes.items():
        make = make_depthwise if name == "depthwise" else make_pointwise
        constant, plain = make(bias), make(None)
        out, other = made(*shape), made(*shape)
        arrays = made(*shape), made(*weight), cuda.to_device(bias)
        queues = {
            "constant": lambda k=constant, a=arrays, o=out, g=grid: k[at(g, (THREADS,))](*a, o),
            "global": lambda k=plain, a=arrays, o=other, g=grid: k[at(g, (THREADS,))](*a, o),
        }
        times = clock.by_turns(queues, 20)
        assert np.array_equal(out.copy_to_host(), other.copy_to_host())
        peers = {"global": 1e3 * times["global"]}
        rows.append(make_row(f"bias {name} 1x32x122x122", 1e3 * times["constant"], peers, "us"))
    return rows


if __name__ == "__main__":
    print_table(measure())
