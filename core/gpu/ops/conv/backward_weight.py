"""Weight gradients: launches of partial sums, and their sum in a fixed order: the same bits every time.

A block has 256 threads: one row of parameters for up to 8 partial sums, each row in float32 in shared memory; the
first row adds them. Row r of 8 adds the partial sums r, r + 8, r + 16 ... One kernel serves every layout: a table
has the index of each parameter in a partial sum. Bytes: the partial sums once, the gradient once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from core.gpu.arguments import KernelSignature, ints, pointers
from core.gpu.compilation.cuda import cuda, f32, i32, i64, u64
from core.gpu.compilation.ptx import load1, load_float, store_float
from core.gpu.frame import Frame, has_bias
from core.gpu.gradients import Backward
from core.gpu.launch import THREADS, Launch, blocks_of, make_launch
from core.gpu.ops.conv import weight_gradient
from core.gpu.ops.conv.configurations import split_of
from core.gpu.ops.conv.geometry import window_values
from core.gpu.ops.conv.operands import Operands, operands_of, partial_size
from core.gpu.select import Case
from core.ops.contract import Array, volume
from core.program import Step

SIGNATURE: Final = KernelSignature((
    *pointers(partial="partial sums (splits, size)",
              table="int32 (count,): the index of each weight, then of each bias, in a partial sum",
              weights="the weights' gradient", biases="the biases' gradient"),
    *ints(splits="partial sums", size="floats of one", first="weights", count="weights and biases",
          accumulate="1 adds to the gradients"),
))  # fmt: skip


ROWS: Final = 8
"""Most rows of a block of the sum: with few partial sums more threads would have nothing to add."""


def make_reduction(rows: int) -> Any:
    """The kernel that adds the partial sums of each parameter in order, with `rows` rows of threads."""
    columns = THREADS // rows

    def reduction(partial, table, weights, biases, splits, size, first, count, accumulate):
        sums = cuda.shared.array((rows, columns), f32)
        tx, ty = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        i = i32(i32(cuda.blockIdx.x) * columns + tx)
        total = f32(0.0)
        if i < count:
            at = u64(partial + u64(i64(load1(u64(table + u64(i64(i) * 4)))) * 4))
            for z in range(ty, splits, rows):
                total = f32(total + load_float(u64(at + u64(i64(z) * i64(size) * 4))))
        sums[ty, tx] = total
        cuda.syncthreads()  # the sums of all rows are stored
        if ty == 0 and i < count:
            for other in range(1, rows):
                total = f32(total + sums[other, tx])
            target = u64(weights + u64(i64(i) * 4)) if i < first else u64(biases + u64(i64(i - first) * 4))
            if accumulate != 0:
                total = f32(total + load_float(target))
            store_float(target, total)

    return reduction


def add_sum(backward: Backward, step: Step, splits: int, size: int, positions: Callable[[bool], Array]) -> None:
    """Add the launch of the sum of a step's partial sums, of `size` floats each, into its gradients.

    `positions`: index of each weight in a partial sum, then of each bias where it is trained.
    """
    frame, name, shape = backward.frame, f"{step.node}.weight", backward.frame.layout.offsets[f"{step.node}.weight"][1]
    bias = _trains_bias(frame, step)
    weights, count = volume(shape), volume(shape) + (shape[0] if bias else 0)
    values = {
        "partial": frame.use(f"partial:{step.node}", 4 * size * splits),
        "table": frame.table(f"gradient:{step.node}", lambda: positions(bias)), "weights": frame.gradient_of(name),
        "biases": frame.gradient_of(f"{step.node}.bias") if bias else 0, "splits": splits, "size": size,
        "first": weights, "count": count, "accumulate": int(backward.accumulate),
    }  # fmt: skip
    rows = min(ROWS, 1 << (splits - 1).bit_length())
    frame.add(make_launch(
        step.node, "backward_weight", make_reduction, (rows,), SIGNATURE, values, (blocks_of(count * rows, THREADS),),
        (THREADS // rows, rows), moved=4 * (splits + 2) * count, resident=1, stream=1,
    ))  # fmt: skip


def _trains_bias(frame: Frame, step: Step) -> bool:
    return has_bias(step) and frame.trains(step, "bias")


def split_pixels(case: Case) -> None:
    """Each block sums its own range of pixels into a partial sum, or into the gradients if there is one range."""
    frame, of = case.frame, operands_of(case.frame, case.step)
    x, window, taps, slices, (tile, blocks) = of.x, of.window, of.taps, of.slices, case.configuration
    dy = frame.tensor(case.step.output, True).first_of(slices)
    pixels, size = frame.batch * dy.height * dy.width, slices * partial_size(dy.padded, taps)
    across = slices * blocks_of(dy.padded, tile.rows)
    split = split_of(tile, blocks, pixels, across * blocks_of(taps.total, tile.columns), frame.processors)
    splits = blocks_of(pixels, split)
    whole = splits == 1 and not case.backward.accumulate and of.is_gradient_in_order(frame.element)
    if whole:
        partial, name = frame.gradient_of(f"{case.step.node}.weight"), f"{case.step.node}.bias"
        biases = frame.gradient_of(name) if _trains_bias(frame, case.step) else 0
    else:
        partial = partial_of(case)
        biases = partial + 4 * dy.padded * taps.total
    values = {
        "x": x.address, "dy": dy.address, "partial": partial, "biases": biases, "pixels": pixels, "split": split,
        "filters": dy.padded, "packed": dy.padded, "depth": taps.total, "ldy": dy.pitch, "size": size,
        **window_values(x, dy, window.stride, window.padding), "channels": taps.channels,
        "kernel_width": taps.kernel[1],
    }  # fmt: skip
    constants = (frame.arithmetic, tile, window.padding != (0, 0, 0, 0), *((True,) if slices > 1 else ()))
    launch = make_launch(
        case.step.node, "backward_weight", weight_gradient.make_weight_gradient, constants,
        weight_gradient.SIGNATURE, values, (across, blocks_of(taps.total, tile.columns), splits),
        (tile.threads,), weight_gradient.shared_bytes(tile, x.element),
        slices * x.element * (pixels * dy.padded + frame.batch * x.height * x.width * x.padded) + 4 * splits * size,
        tile.blocks, flops=2 * slices * pixels * dy.padded * taps.total, stream=1,
    )  # fmt: skip
    if not whole:
        add_with_sum(case, of, splits, size, launch)
    elif frame.trains(case.step, "weight"):
        frame.add(launch)


def partial_of(case: Case) -> int:
    """Address of the partial sums of the first step, whose size `add_with_sum` says."""
    return case.frame.use(f"partial:{case.step.node}", 0)


def add_with_sum(case: Case, of: Operands, splits: int, size: int, launch: Launch) -> None:
    """Add the launch of `splits` partial sums of `size` floats, and that of their sum into the first step's
    gradients."""
    frame, step = case.frame, case.step
    if frame.trains(step, "weight"):
        frame.add(launch)
        add_sum(case.backward, step, splits, size, lambda bias: of.gradient_positions(frame.element, bias))
