"""Launches of small-batch depthwise convolutions with the 1x1 expansion before them."""

from __future__ import annotations

from core.gpu.frame import bias_of
from core.gpu.latency import expand_depthwise
from core.gpu.latency.block import CHUNK, VECTOR
from core.gpu.latency.conv_launches import READ, is_read_once, refuse_unless
from core.gpu.launch import RELU, blocks_of, make_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.geometry import reads_image
from core.gpu.ops.conv.products import pack_rows
from core.gpu.ops.depthwise.launches import pack
from core.gpu.ops.norm.pairs import suits_strips
from core.gpu.select import Case
from core.ops.window import POINT, read_window


def refuse_expand(case: Case) -> str:
    frame, (step, following) = case.frame, case.steps

    def dense() -> bool:
        x = frame.image(step.inputs[0])
        return x.row_pitch == x.width * x.pitch

    return refuse_unless(
        case,
        ("It does not read the network's input.", lambda: not reads_image(step)),
        ("Its depthwise convolution is 3x3 of stride 1 or 2 with a border of 1.", lambda: suits_strips(following)),
        (READ, lambda: is_read_once(frame, step, following)),
        ("It computes 1x1 convolutions without groups.",
            lambda: read_window(step.attributes) == POINT and step.attributes["groups"] == 1),
        ("It takes a multiple of 16 channels.", lambda: step.output.shape[-1] % expand_depthwise.CHANNELS == 0),
        ("It needs rows without gaps.", dense),
    )  # fmt: skip


def write_expand(case: Case) -> None:
    """A 1x1 expansion and the depthwise convolution behind it."""
    frame, (step, following) = case.frame, case.steps
    (tall, warps), stride = case.configuration, read_window(following.attributes).stride[0]
    x, out = frame.image(step.inputs[0]), frame.image(following.output)
    taps, channels = packing.taps_of(x, POINT, False), out.padded
    vectors, tiles = taps.total // VECTOR, expand_depthwise.fragments(tall, stride, x.height, x.width, warps)
    weight2 = frame.packed(f"{following.node}.weight", lambda: pack(frame, following, channels))
    values = {
        "x": x.address, "weight": pack_rows(frame, step, taps), "bias": bias_of(frame, step), "weight2": weight2,
        "bias2": bias_of(frame, following), "out": out.address, "depth": packing.padded_depth(taps.total, 2),
        "vectors": vectors, "channels": channels, "tall": tall, "height": x.height, "width": x.width,
        "ho": out.height, "wo": out.width, "by_columns": out.width, "ldx": x.pitch, "ldo": out.pitch,
        "activation": RELU[step.activation], "activation2": RELU[following.activation],
    }  # fmt: skip
    made = ("latency.expand_depthwise", "make_expand_depthwise", (tiles, blocks_of(vectors, CHUNK), warps, stride))
    frame.add(
        make_launch(
            following.node, "forward", "tensor_core", made, expand_depthwise.SIGNATURE, values,
            (blocks_of(out.height, tall), channels // expand_depthwise.CHANNELS, frame.batch), (32 * warps, 1, 1),
            expand_depthwise.shared_bytes(tiles, warps),
            2 * frame.batch * (x.height * x.width * x.padded + out.height * out.width * channels), 1,
            flops=2 * frame.batch * x.height * x.width * channels * taps.total,
        )
    )  # fmt: skip
