"""MobileNetV2, width 1.0 and 1.4. Source: Sandler et al., 2018, tables 2 and 4.

Names are those of torchvision's state dict, 3,504,872 parameters at 1000 classes. The wide one keeps 1280 channels
before its head, where the paper has 1792: 4.2 million parameters at 38 classes, 4.4 MB in eight bits.
`Options.padding` "tensorflow" pads strided convolutions at the bottom and right only, as weights trained there expect.
"""

from __future__ import annotations

from typing import Final

from core.graph import Graph
from core.models.options import Options, round_channels, start
from core.ops.builder import Builder

ROWS: Final = (
    # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FIRST: Final = 32
LAST: Final = 1280
"""Channels of the first and the last convolution."""


def mobilenetv2(options: Options) -> Graph:
    """Inverted residual blocks: narrow between the blocks, wide and depthwise inside."""
    return _network("mobilenetv2", options, 1.0)


def mobilenetv2_wide(options: Options) -> Graph:
    """1.4 times the channels in every block."""
    return _network("mobilenetv2_wide", options, 1.4)


def _network(name: str, options: Options, width: float) -> Graph:
    b = start(name, options, paddings=("same", "tensorflow"))
    x = _convolve(b, "features.0", "photo", options, round_channels(FIRST * width), kernel=3, stride=2)
    index = 1
    for expansion, channels, blocks, stride in ROWS:
        for block in range(blocks):
            step = stride if block == 0 else 1
            x = _block(b, f"features.{index}", x, options, expansion, round_channels(channels * width), step)
            index += 1
    x = _convolve(b, f"features.{index}", x, options, LAST, kernel=1)
    x = b.add("global_avg_pool", "pool", x)
    x = b.add("dropout", "classifier.0", x, rate=options.dropout)
    return b.graph(b.add("dense", "classifier.1", x, units=options.classes, init="normal_0.01"))


def _block(b: Builder, name: str, x: str, options: Options, expansion: int, channels: int, stride: int) -> str:
    """Expand, filter each channel, project; added to its input where the shapes allow."""
    wide = b.shape(x)[-1] * expansion
    y, part = x, 0
    if expansion > 1:
        y, part = _convolve(b, f"{name}.conv.0", y, options, wide, kernel=1), 1
    y = _convolve(b, f"{name}.conv.{part}", y, options, 0, 3, stride)
    y = b.add("conv2d", f"{name}.conv.{part + 1}", y, filters=channels, bias=False, init="he_normal_out")
    y = b.add("batch_norm", f"{name}.conv.{part + 2}", y, frozen=options.frozen)
    return b.add("add", name, x, y) if stride == 1 and b.shape(x) == b.shape(y) else y


def _convolve(b: Builder, name: str, x: str, options: Options, filters: int, kernel: int, stride: int = 1) -> str:
    """Convolution, depthwise where `filters` is 0; batch norm; ReLU6."""
    op, more = ("conv2d", {"filters": filters}) if filters else ("depthwise_conv2d", {})
    x = b.add(
        op, f"{name}.0", x, kernel=(kernel, kernel), stride=(stride, stride),
        padding=_padding(b, x, options, kernel, stride), bias=False, init="he_normal_out", **more,
    )  # fmt: skip
    return b.add("relu6", f"{name}.2", b.add("batch_norm", f"{name}.1", x, frozen=options.frozen))


def _padding(b: Builder, x: str, options: Options, kernel: int, stride: int) -> tuple[int, int, int, int]:
    """Even all around, or TensorFlow's "same": what is needed, the odd pixel at the bottom and right."""
    if options.padding != "tensorflow":
        return (kernel // 2,) * 4
    height, width, _ = b.shape(x)
    rows, columns = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (height, width))
    return (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
