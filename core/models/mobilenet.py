"""MobileNetV2, width 1.0 and 1.4, and MobileNetV3-Large and -Small: blocks that are wide and depthwise inside.

Sources: Sandler et al., 2018, tables 2 and 4; Howard et al., "Searching for MobileNetV3", 2019, tables 1 and 2. Names
are those of torchvision's state dict: 3,504,872, 5,483,032 and 2,542,856 parameters at 1000 classes. The wide
MobileNetV2 keeps 1280 channels before its head, where the paper has 1792: 4.2 million parameters at 38 classes, 4.4
MB in eight bits. The squeeze and excitation layers ``fc1`` and ``fc2`` are dense layers, where torchvision has 1x1
convolutions of one pixel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from core.graph import Graph
from core.models.options import Options, round_channels, start
from core.ops.builder import Builder

V2_ROWS: Final = (
    # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
V2_FIRST: Final = 32
V2_LAST: Final = 1280
"""Channels of the first and the last convolution."""


@dataclass(frozen=True, slots=True)
class InvertedResidual:
    """A block of MobileNetV3: side of its depthwise filters, channels within and after it, whether it squeezes and
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
V3_FIRST: Final = 16
"""Channels of the first convolution."""
V3_WIDENS: Final = 6
"""Channels of the last convolution per channel of the last block."""
V3_NORM: Final[dict[str, Any]] = {"epsilon": 1e-3, "momentum": 0.01}
"""Options of every batch norm, as in torchvision."""


def mobilenetv2(options: Options, width: float = 1.0) -> Graph:
    b = start("mobilenetv2", options)
    x = _convolve(b, "features.0", "photo", round_channels(V2_FIRST * width), 3, 2, "relu6")
    index = 1
    for expansion, channels, blocks, stride in V2_ROWS:
        for block in range(blocks):
            step = stride if block == 0 else 1
            x = _v2_block(b, f"features.{index}", x, expansion, round_channels(channels * width), step)
            index += 1
    x = _convolve(b, f"features.{index}", x, V2_LAST, 1, 1, "relu6")
    x = b.add("global_avg_pool", "pool", x)
    x = b.add("dropout", "classifier.0", x, rate=options.dropout)
    return b.graph(b.add("dense", "classifier.1", x, units=options.classes, init="normal_0.01"))


def _v2_block(b: Builder, name: str, x: str, expansion: int, channels: int, stride: int) -> str:
    """Expand, filter each channel, project; added to its input where the shapes allow."""
    wide = b.shape(x)[-1] * expansion
    y, part = x, 0
    if expansion > 1:
        y, part = _convolve(b, f"{name}.conv.0", y, wide, 1, 1, "relu6"), 1
    y = _convolve(b, f"{name}.conv.{part}", y, 0, 3, stride, "relu6")
    y = b.add("conv2d", f"{name}.conv.{part + 1}", y, filters=channels, bias=False, init="he_normal_out")
    y = b.add("batch_norm", f"{name}.conv.{part + 2}", y)
    return b.add("add", name, x, y) if stride == 1 and b.shape(x) == b.shape(y) else y


def _mobilenetv3(options: Options, name: str, rows: tuple[InvertedResidual, ...], hidden: int) -> Graph:
    b = start(name, options)
    x = _convolve(b, "features.0", "photo", V3_FIRST, 3, 2, HS, V3_NORM)
    for index, row in enumerate(rows, start=1):
        x = _v3_block(b, f"features.{index}", x, row)
    x = _convolve(b, f"features.{len(rows) + 1}", x, V3_WIDENS * rows[-1].channels, 1, 1, HS, V3_NORM)
    x = b.add("global_avg_pool", "avgpool", x)
    x = b.add("dense", "classifier.0", x, units=hidden, init="normal_0.01")
    x = b.add(HS, "classifier.1", x)
    x = b.add("dropout", "classifier.2", x, rate=options.dropout)
    return b.graph(b.add("dense", "classifier.3", x, units=options.classes, init="normal_0.01"))


mobilenetv3_large = partial(_mobilenetv3, name="mobilenetv3_large", rows=LARGE, hidden=1280)
"""15 blocks and 1280 hidden units."""
mobilenetv3_small = partial(_mobilenetv3, name="mobilenetv3_small", rows=SMALL, hidden=1024)
"""11 blocks and 1024 hidden units: 3.8 times less work."""


def _v3_block(b: Builder, name: str, x: str, row: InvertedResidual) -> str:
    """Expand, filter each channel, scale the channels, project; added to its input where the shapes allow."""
    y, part = x, 0
    if row.wide != b.shape(x)[-1]:
        y, part = _convolve(b, f"{name}.block.0", y, row.wide, 1, 1, row.activation, V3_NORM), 1
    y = _convolve(b, f"{name}.block.{part}", y, 0, row.kernel, row.stride, row.activation, V3_NORM)
    if row.excites:
        part += 1
        y = _excite(b, f"{name}.block.{part}", y)
    y = _convolve(b, f"{name}.block.{part + 1}", y, row.channels, 1, 1, "", V3_NORM)
    return b.add("add", name, x, y) if row.stride == 1 and b.shape(x) == b.shape(y) else y


def _excite(b: Builder, name: str, x: str) -> str:
    """Squeeze and excitation (Hu et al., 2018): each channel times a factor made from the averages of all of them."""
    wide = b.shape(x)[-1]
    s = b.add("global_avg_pool", f"{name}.avgpool", x)
    s = b.add("dense", f"{name}.fc1", s, units=round_channels(wide // 4), init="he_normal_out")
    s = b.add("relu", f"{name}.activation", s)
    s = b.add("dense", f"{name}.fc2", s, units=wide, init="he_normal_out")
    s = b.add("hard_sigmoid", f"{name}.scale_activation", s)
    return b.add("multiply", name, x, s)


def _convolve(
    b: Builder, name: str, x: str, filters: int, kernel: int, stride: int, activation: str,
    norm: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """Convolution, depthwise where `filters` is 0; batch norm; activation if any."""
    op, more = ("conv2d", {"filters": filters}) if filters else ("depthwise_conv2d", {})
    x = b.add(
        op, f"{name}.0", x, kernel=(kernel, kernel), stride=(stride, stride),
        padding=(kernel // 2,) * 4, bias=False, init="he_normal_out", **more,
    )  # fmt: skip
    x = b.add("batch_norm", f"{name}.1", x, **(norm or {}))
    return b.add(activation, f"{name}.2", x) if activation else x
