"""MobileNetV3-Large and -Small, width 1.0. Source: Howard et al., "Searching for MobileNetV3", 2019, tables 1 and 2.

Names are those of torchvision's state dict, 5,483,032 and 2,542,856 parameters at 1000 classes. The squeeze and
excitation layers ``fc1`` and ``fc2`` are dense layers, where torchvision has 1x1 convolutions of one pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from core.graph import Graph
from core.models.options import Options, round_channels, start
from core.ops.builder import Builder


@final
@dataclass(frozen=True, slots=True)
class InvertedResidual:
    """An inverted residual block: side of its depthwise filters, channels within and after it, whether it squeezes and
    excites, its activation, and the stride."""

    kernel: int
    wide: int
    channels: int
    excites: bool
    activation: str
    stride: int


RE, HS = "relu", "hard_swish"

LARGE: Final = (
    InvertedResidual(3, 16, 16, False, RE, 1),
    InvertedResidual(3, 64, 24, False, RE, 2),
    InvertedResidual(3, 72, 24, False, RE, 1),
    InvertedResidual(5, 72, 40, True, RE, 2),
    InvertedResidual(5, 120, 40, True, RE, 1),
    InvertedResidual(5, 120, 40, True, RE, 1),
    InvertedResidual(3, 240, 80, False, HS, 2),
    InvertedResidual(3, 200, 80, False, HS, 1),
    InvertedResidual(3, 184, 80, False, HS, 1),
    InvertedResidual(3, 184, 80, False, HS, 1),
    InvertedResidual(3, 480, 112, True, HS, 1),
    InvertedResidual(3, 672, 112, True, HS, 1),
    InvertedResidual(5, 672, 160, True, HS, 2),
    InvertedResidual(5, 960, 160, True, HS, 1),
    InvertedResidual(5, 960, 160, True, HS, 1),
)
SMALL: Final = (
    InvertedResidual(3, 16, 16, True, RE, 2),
    InvertedResidual(3, 72, 24, False, RE, 2),
    InvertedResidual(3, 88, 24, False, RE, 1),
    InvertedResidual(5, 96, 40, True, HS, 2),
    InvertedResidual(5, 240, 40, True, HS, 1),
    InvertedResidual(5, 240, 40, True, HS, 1),
    InvertedResidual(5, 120, 48, True, HS, 1),
    InvertedResidual(5, 144, 48, True, HS, 1),
    InvertedResidual(5, 288, 96, True, HS, 2),
    InvertedResidual(5, 576, 96, True, HS, 1),
    InvertedResidual(5, 576, 96, True, HS, 1),
)
FIRST: Final = 16
"""Channels of the first convolution."""
WIDENS: Final = 6
"""The last convolution has so many times the channels of the last block."""
EPSILON, MOMENTUM = 1e-3, 0.01
"""Of every batch norm, as in torchvision."""


def mobilenetv3_large(options: Options) -> Graph:
    """15 blocks and 1280 hidden units."""
    return _network("mobilenetv3_large", options, LARGE, 1280)


def mobilenetv3_small(options: Options) -> Graph:
    """11 blocks and 1024 hidden units: 3.8 times less work."""
    return _network("mobilenetv3_small", options, SMALL, 1024)


def _network(name: str, options: Options, rows: tuple[InvertedResidual, ...], hidden: int) -> Graph:
    b = start(name, options)
    x = _convolve(b, "features.0", "photo", options, FIRST, 3, 2, HS)
    for index, row in enumerate(rows, start=1):
        x = _block(b, f"features.{index}", x, options, row)
    x = _convolve(b, f"features.{len(rows) + 1}", x, options, WIDENS * rows[-1].channels, 1, 1, HS)
    x = b.add("global_avg_pool", "avgpool", x)
    x = b.add("dense", "classifier.0", x, units=hidden, init="normal_0.01")
    x = b.add(HS, "classifier.1", x)
    x = b.add("dropout", "classifier.2", x, rate=options.dropout)
    return b.graph(b.add("dense", "classifier.3", x, units=options.classes, init="normal_0.01"))


def _block(b: Builder, name: str, x: str, options: Options, row: InvertedResidual) -> str:
    """Expand, filter each channel, scale the channels, project; added to its input where the shapes allow."""
    y, part = x, 0
    if row.wide != b.shape(x)[-1]:
        y, part = _convolve(b, f"{name}.block.0", y, options, row.wide, 1, 1, row.activation), 1
    y = _convolve(b, f"{name}.block.{part}", y, options, 0, row.kernel, row.stride, row.activation)
    if row.excites:
        part += 1
        y = _excite(b, f"{name}.block.{part}", y)
    y = _convolve(b, f"{name}.block.{part + 1}", y, options, row.channels, 1, 1, "")
    return b.add("add", name, x, y) if row.stride == 1 and b.shape(x) == b.shape(y) else y


def _convolve(
    b: Builder, name: str, x: str, options: Options, filters: int, kernel: int, stride: int, activation: str
) -> str:
    """Convolution, depthwise where `filters` is 0; batch norm; activation if any."""
    window = {"kernel": (kernel, kernel), "stride": (stride, stride), "padding": (kernel // 2,) * 4}
    op, more = ("conv2d", {"filters": filters}) if filters else ("depthwise_conv2d", {})
    x = b.add(op, f"{name}.0", x, bias=False, init="he_normal_out", **window, **more)
    x = b.add("batch_norm", f"{name}.1", x, epsilon=EPSILON, momentum=MOMENTUM, frozen=options.frozen)
    return b.add(activation, f"{name}.2", x) if activation else x


def _excite(b: Builder, name: str, x: str) -> str:
    """Squeeze and excitation (Hu et al., 2018): each channel times a factor made from the averages of all of them."""
    wide = b.shape(x)[-1]
    s = b.add("global_avg_pool", f"{name}.avgpool", x)
    s = b.add("dense", f"{name}.fc1", s, units=round_channels(wide // 4), init="he_normal_out")
    s = b.add("relu", f"{name}.activation", s)
    s = b.add("dense", f"{name}.fc2", s, units=wide, init="he_normal_out")
    s = b.add("hard_sigmoid", f"{name}.scale_activation", s)
    return b.add("multiply", name, x, s)
