"""3x3 convolutions of few pixels, as one photo has them: both halves of a fire's expand in one launch."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.compilation.compiler import Recipe
from core.gpu.frame import Frame, bias_of
from core.gpu.kernels.convolution import few_halo
from core.gpu.kernels.convolution.few_pixels import PART, Few
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.launch import RELU, Launch, Tensor, blocks_of
from core.gpu.ops.conv import forward, packing
from core.gpu.ops.conv.packing import Taps
from core.gpu.ops.conv.products import Half
from core.gpu.select import Case
from core.gpu.writers import tiles


def shape_of(frame: Frame, x: Tensor, out: Tensor, half: int) -> Few | None:
    """The block that was measured fastest, if it is of this kernel; `half`: the fire's 1x1 filters."""
    if frame.arithmetic != "bf16" or frame.program.training:
        return None
    shape = tiles.few_fire(frame.batch * x.height * x.width, out.padded, x.padded, half)
    if shape is None or few_halo.shared_bytes(shape, x.width, x.padded // PART) > frame.shared:
        return None
    return shape


def halo(
    layer: str, batch: int, x: Tensor, out: Tensor, taps: Taps, weight: int, bias: int, activation: str, shape: Few,
    half: Half | None = None,
) -> Launch:  # fmt: skip
    """The launch of a 3x3 convolution of stride 1 in bf16; with `half`, out's first channels are the 1x1's."""
    limit, columns = batch * (x.height + 1) * (x.width + 1), out.padded
    parts, within = taps.total // PART, x.padded // PART
    first = (half.weight, half.bias, half.filters, half.depth) if half else (0, 0, 0, 0)
    values = (
        x.address, weight, bias, out.address, *first, limit, columns, packing.padded_depth(taps.total, 2), parts,
        *fast_divisor((x.height + 1) * (x.width + 1)), *fast_divisor(x.width + 1), *fast_divisor(within), x.height,
        x.width, within, few_halo.room_for(shape, x.width), x.pitch, out.pitch, RELU[activation],
    )  # fmt: skip
    kinds = tuple(str(a) for a in few_halo.ARGUMENTS)
    made = (shape.numbers, shape.turns(parts))
    recipe = Recipe("convolution.few_halo", "make_few_halo", made, kinds, shape.threads)
    (tall, wide), ones, rows = shape.size, half.filters if half else 0, batch * x.height * x.width
    return Launch(
        layer, "forward", "tensor_core", recipe, (blocks_of(limit, tall), blocks_of(columns, wide), 1),
        (shape.threads, 1, 1), few_halo.shared_bytes(shape, x.width, within), values,
        flops=2 * rows * ((columns - ones) * taps.total + ones * taps.channels), bytes=2 * rows * (x.padded + columns),
    )  # fmt: skip


def _fire_shape(case: Case) -> Few | None:
    frame, (one, three) = case.frame, case.steps
    x, out = frame.image(one.inputs[0]), frame.image(one.output)
    out = replace(out, channels=one.output.shape[-1] + three.output.shape[-1])
    return case.configuration or shape_of(frame, x, out, one.output.shape[-1])


def refuse_fire(case: Case) -> str:
    if reason := forward.refuse_fire(case):
        return reason
    found = _fire_shape(case) is not None
    return "" if found else "It computes predictions of few pixels, where it was measured the fastest."


def fire(case: Case) -> None:
    """Both expand layers of a fire."""
    frame, three, shape = case.frame, case.steps[1], _fire_shape(case)
    assert shape is not None
    x, out, taps, weight, half = forward.fire_arguments(case)
    frame.add(halo(three.node, frame.batch, x, out, taps, weight, bias_of(frame, three), three.activation, shape, half))
