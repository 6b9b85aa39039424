"""Sum and maximum over a block of 128 threads, in a fixed order."""

from __future__ import annotations

from core.gpu.compilation.cuda import cuda, device_function, types

i32, f32 = types.int32, types.float32


@device_function
def block_sum(value, scratch):
    """Sum over the block, in a fixed order, for every thread."""
    t = i32(cuda.threadIdx.x)
    cuda.syncthreads()
    scratch[t] = value
    cuda.syncthreads()
    step = i32(64)
    while step > 0:
        if t < step:
            scratch[t] = f32(scratch[t] + scratch[i32(t + step)])
        cuda.syncthreads()
        step = i32(step // 2)
    return scratch[0]


@device_function
def block_max(value, scratch):
    """Largest value of the block."""
    t = i32(cuda.threadIdx.x)
    cuda.syncthreads()
    scratch[t] = value
    cuda.syncthreads()
    step = i32(64)
    while step > 0:
        if t < step:
            scratch[t] = max(scratch[t], scratch[i32(t + step)])
        cuda.syncthreads()
        step = i32(step // 2)
    return scratch[0]
