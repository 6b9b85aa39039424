"""Sums of partial gradients, in a fixed order: the same bits every time.

    grid: parameters / 32      block: 32 parameters x 8 rows of threads; row r adds the splits r, r + 8, r + 16 ...

Shared memory: the sums of 8 rows, (8, 32) float32; the first row adds them. One kernel serves every layout: a table has
the index of each parameter in a partial result. Bytes: the partial results once, the gradient once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from core.gpu.arguments import KernelSignature, ints, pointers
from core.gpu.compilation.cuda import cuda, f32, i32, i64, u64
from core.gpu.compilation.ptx import load1, load_float, store_float
from core.gpu.frame import has_bias
from core.gpu.gradients import Backward
from core.gpu.launch import blocks_of, make_launch
from core.ops.contract import Array, volume
from core.program import Step

SIGNATURE: Final = KernelSignature((
    *pointers(partial="partial results (splits, size)",
              table="int32 (count,): the index of each weight, then of each bias, in a partial result",
              weights="the weights' gradient", biases="the biases' gradient"),
    *ints(splits="partial results", size="floats of one", first="weights", count="weights and biases",
          accumulate="1 adds to the gradients"),
))  # fmt: skip


def reduction(partial, table, weights, biases, splits, size, first, count, accumulate):
    """Add the partial results of each parameter in order."""
    sums = cuda.shared.array((8, 32), f32)
    tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
    i = i32(i32(cuda.blockIdx.x) * 32 + tx)
    total = f32(0.0)
    if i < count:
        at = u64(partial + u64(i64(load1(u64(table + u64(i64(i) * 4)))) * 4))
        for z in range(ty, splits, 8):
            total = f32(total + load_float(u64(at + u64(i64(z) * i64(size) * 4))))
    sums[ty, tx] = total
    cuda.syncthreads()  # the sums of all rows are stored
    if ty == 0 and i < count:
        for other in range(1, 8):
            total = f32(total + sums[other, tx])
        target = u64(weights + u64(i64(i) * 4)) if i < first else u64(biases + u64(i64(i - first) * 4))
        if accumulate != 0:
            total = f32(total + load_float(target))
        store_float(target, total)


def add_sum(backward: Backward, step: Step, splits: int, size: int, positions: Callable[[bool], Array]) -> None:
    """Add the launch of the sum of a step's partial results, of `size` floats each, into its gradients.

    `positions`: index of each weight in a partial result, then of each bias where it is trained.
    """
    frame, name, shape = backward.frame, f"{step.node}.weight", backward.frame.layout.offsets[f"{step.node}.weight"][1]
    bias = has_bias(step) and frame.trains(step, "bias")
    weights, count = volume(shape), volume(shape) + (shape[0] if bias else 0)
    values = {
        "partial": frame.use(f"partial:{step.node}", 4 * size * splits),
        "table": frame.table(f"gradient:{step.node}", lambda: positions(bias)), "weights": frame.gradient_of(name),
        "biases": frame.gradient_of(f"{step.node}.bias") if bias else 0, "splits": splits, "size": size,
        "first": weights, "count": count, "accumulate": int(backward.accumulate),
    }  # fmt: skip
    frame.add(make_launch(
        step.node, "backward_weight", "reduction", reduction, (), SIGNATURE, values, (blocks_of(count, 32),), (32, 8),
        moved=4 * (splits + 2) * count, resident=1, stream=1,
    ))  # fmt: skip
