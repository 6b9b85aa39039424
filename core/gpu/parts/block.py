"""Sum and maximum over a block of 128 threads, in a fixed order."""

from __future__ import annotations

from typing import Any

from core.gpu.compilation.cuda import cuda, device_function, f32, i32


def _make_reduction(combine: Any) -> Any:
    """Device function ``reduce(value, scratch)``: one value of each thread combined, for every thread."""

    @device_function
    def reduce(value, scratch):
        t = i32(cuda.threadIdx.x)
        cuda.syncthreads()
        scratch[t] = value
        cuda.syncthreads()
        step = i32(64)
        while step > 0:
            if t < step:
                scratch[t] = combine(scratch[t], scratch[i32(t + step)])
            cuda.syncthreads()
            step = i32(step // 2)
        return scratch[0]

    return reduce


block_sum = _make_reduction(device_function(lambda a, b: f32(a + b)))
block_max = _make_reduction(device_function(lambda a, b: max(a, b)))
