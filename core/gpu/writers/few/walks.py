"""Depthwise convolutions of few pixels: alone, and in one launch with the expansion in front of them."""

from __future__ import annotations

from dataclasses import replace

from core.gpu.frame import Frame, bias_of
from core.gpu.kernels.convolution import depthwise_few, expand_few
from core.gpu.kernels.convolution.few_pixels import CHUNK, PART
from core.gpu.kernels.parts.fragments import fast_divisor
from core.gpu.launch import RELU, Launch, Tensor, blocks_of, simple_launch
from core.gpu.ops.conv import packing
from core.gpu.ops.conv.forward import pack_rows
from core.gpu.ops.conv.packing import Taps
from core.gpu.writers import depthwise_steps, tiles
from core.gpu.writers.few.convolutions import read_by, reads_alone
from core.gpu.writers.norm_pairs import is_walkable
from core.graph import PHOTO
from core.ops.window import POINT, read_window
from core.program import Step


def suits_one_output_a_thread(frame: Frame, step: Step) -> bool:
    """Whether a depthwise convolution of one photo is faster so than by the walk."""
    height, width, channels = step.output.shape
    if frame.program.training or frame.arithmetic != "bf16":
        return False
    return tiles.few_depthwise(frame.batch * height * width, channels, read_window(step.attributes).stride[0])


def depthwise(frame: Frame, step: Step) -> Launch:
    """The launch of a depthwise convolution."""
    window, x, out = read_window(step.attributes), frame.image(step.inputs[0]), frame.image(step.output)
    lanes = out.padded // PART
    total = frame.batch * out.height * out.width * lanes
    weight = frame.packed(f"{step.node}.weight", lambda: depthwise_steps.pack(frame, step, out.padded))
    values = (
        x.address, weight, bias_of(frame, step), out.address, total, lanes, *fast_divisor(lanes),
        *fast_divisor(out.height * out.width), *fast_divisor(out.width), x.height, x.width, out.height, out.width,
        x.pitch, out.pitch, *window.padding[:2], RELU[step.activation],
    )  # fmt: skip
    threads = depthwise_few.THREADS
    return simple_launch(
        step.node, "forward", "fused", "convolution.depthwise_few", "make_depthwise_few",
        ((*window.kernel, *window.stride),), depthwise_few.ARGUMENTS, (blocks_of(total, threads), 1, 1),
        (threads, 1, 1), values, blocks=1,
        moved=2 * frame.batch * out.padded * (x.height * x.width + out.height * out.width),
    )


def walks_behind(frame: Frame, step: Step, following: Step) -> bool:
    """Whether the next step is a depthwise convolution that this expansion's kernel can do too."""
    if step.op != "conv2d" or following.op != "depthwise_conv2d" or PHOTO in read_by(step):
        return False
    if frame.arithmetic != "bf16" or not is_walkable(following) or not reads_alone(frame, step, following):
        return False
    if read_window(step.attributes) != POINT or step.attributes["groups"] != 1:
        return False
    x, wide = frame.image(step.inputs[0]), step.output.shape[-1]
    suits = wide % expand_few.CHANNELS == 0 and x.row_pitch == x.width * x.pitch
    return suits and _shape(frame, step, following) is not None


def _shape(frame: Frame, step: Step, following: Step) -> tuple[int, int] | None:
    """Rows and warps of a block."""
    stride, channels = read_window(following.attributes).stride[0], frame.image(step.inputs[0]).padded
    return tiles.few_expand(frame.batch, step.output.shape, following.output.shape, channels, stride)


def expand_walk(frame: Frame, step: Step, following: Step) -> Launch:
    """The launch of an expansion and the depthwise convolution behind it."""
    x, out = frame.image(step.inputs[0]), frame.image(following.output)
    taps, stride = packing.taps_of(x, POINT, False), read_window(following.attributes).stride[0]
    found = _shape(frame, step, following)
    assert found is not None
    return expand_launch(frame, step, following, x, out, taps, stride, *found)


def expand_launch(
    frame: Frame, step: Step, following: Step, x: Tensor, out: Tensor, taps: Taps, stride: int, tall: int, warps: int
) -> Launch:
    """The same with blocks of `warps` warps that make `tall` rows each."""
    parts, channels = taps.total // PART, out.padded
    fragments = expand_few.fragments(tall, stride, x.height, x.width, warps)
    weight2 = frame.packed(f"{following.node}.weight", lambda: depthwise_steps.pack(frame, following, channels))
    values = (
        x.address, pack_rows(frame, step, taps), bias_of(frame, step), weight2, bias_of(frame, following), out.address,
        packing.padded_depth(taps.total, 2), parts, channels, tall, x.height, x.width, out.height, out.width,
        *fast_divisor(out.width), x.pitch, out.pitch, RELU[step.activation], RELU[following.activation],
    )  # fmt: skip
    launch = simple_launch(
        following.node, "forward", "tensor_core", "convolution.expand_few", "make_expand_walk",
        (fragments, blocks_of(parts, CHUNK), warps, stride), expand_few.ARGUMENTS,
        (blocks_of(out.height, tall), channels // expand_few.CHANNELS, frame.batch), (32 * warps, 1, 1), values,
        expand_few.shared_bytes(fragments, warps), blocks=1,
        moved=2 * frame.batch * (x.height * x.width * x.padded + out.height * out.width * channels),
    )  # fmt: skip
    return replace(launch, flops=2 * frame.batch * x.height * x.width * channels * taps.total)
