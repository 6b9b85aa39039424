"""Launches of small-batch 3x3 convolutions: both expand halves of a fire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from core.gpu.frame import bias_of
from core.gpu.latency import fire_halo
from core.gpu.latency.block import VECTOR, BlockShape
from core.gpu.latency.conv_launches import refuse_unless
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, make_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import is_fire
from core.gpu.ops.conv.packing import Taps
from core.gpu.ops.conv.products import pack_rows
from core.gpu.select import Case
from core.ops.window import read_window

MOST_PIXELS: Final = 3100
"""Pixels up to which both halves of a fire are one launch: with more, they were measured faster beside each other."""


@final
@dataclass(frozen=True, slots=True)
class Half:
    """The 1x1 convolution that shares a launch with a 3x3 one: packed filters, bias, filters, row length."""

    weight: int = 0
    bias: int = 0
    filters: int = 0
    depth: int = 0


def halo_launch(
    layer: str, batch: int, x: Tensor, out: Tensor, taps: Taps, weight: int, bias: int, activation: str,
    shape: BlockShape, half: Half | None = None,
) -> Launch:  # fmt: skip
    """The launch of a 3x3 convolution of stride 1; with `half`, out's first channels are the 1x1 half's."""
    limit, columns = batch * (x.height + 1) * (x.width + 1), out.padded
    vectors, channel_vectors = taps.total // VECTOR, x.padded // VECTOR
    ones = half or Half()
    values = {
        "x": x.address, "weight": weight, "bias": bias, "out": out.address, "weight1": ones.weight, "bias1": ones.bias,
        "columns1": ones.filters, "depth1": ones.depth, "limit": limit, "columns": columns,
        "depth": packing.padded_depth(taps.total, 2), "vectors": vectors,
        "by_numbers": (x.height + 1) * (x.width + 1), "by_columns": x.width + 1, "by_channels": channel_vectors,
        "height": x.height, "width": x.width, "channel_vectors": channel_vectors,
        "room": fire_halo.room_for(shape, x.width), "ldx": x.pitch, "ldo": out.pitch, "activation": RELU[activation],
    }  # fmt: skip
    made = ("latency.fire_halo", "make_fire_halo", (shape.numbers, shape.turns(vectors)))
    (tall, wide), rows = shape.size, batch * x.height * x.width
    return make_launch(
        layer, "forward", "tensor_core", made, fire_halo.SIGNATURE, values,
        (blocks_of(limit, tall), blocks_of(columns, wide), 1), (shape.threads, 1, 1),
        fire_halo.shared_bytes(shape, x.width, channel_vectors), 2 * rows * (x.padded + columns), 1,
        flops=2 * rows * ((columns - ones.filters) * taps.total + ones.filters * taps.channels),
    )  # fmt: skip


def refuse_fire(case: Case) -> str:
    height, width, _ = case.step.output.shape
    return refuse_unless(
        case, ("It computes both expand layers of a fire.", lambda: is_fire(*case.steps)),
        (f"It computes up to {MOST_PIXELS} pixels.", lambda: case.frame.batch * height * width <= MOST_PIXELS),
    )  # fmt: skip


def write_fire(case: Case) -> None:
    """Both expand layers of a fire."""
    frame, (one, three) = case.frame, case.steps
    x, out = frame.image(one.inputs[0]), frame.image(one.output)
    out = replace(out, channels=one.output.shape[-1] + three.output.shape[-1])
    point, taps = (packing.taps_of(x, read_window(s.attributes), False) for s in case.steps)
    weight, bias = pack_rows(frame, three, taps), bias_of(frame, three)
    half = Half(
        pack_rows(frame, one, point), bias_of(frame, one), one.output.shape[-1], packing.padded_depth(point.total, 2)
    )
    sides = (three.node, frame.batch, x, out, taps, weight, bias, three.activation)
    frame.add(halo_launch(*sides, case.configuration, half))
