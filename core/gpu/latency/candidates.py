"""Candidates for predictions of one or two images."""

from __future__ import annotations

from typing import Final

from core.gpu.latency import configurations as of
from core.gpu.latency import conv_launches, expand_launches, fire_launches
from core.gpu.select import BF16, FORWARD, Candidate

CANDIDATES: Final = (
    Candidate("low_latency", ("conv2d",), FORWARD, conv_launches.write_conv,
              "a block issues all its loads at once, warps split the depth", "auto", 0.45,
              conv_launches.refuse_conv, arithmetics=BF16, configurations=of.conv_shapes),
    Candidate("low_latency", ("dense",), FORWARD, conv_launches.write_dense,
              "a block issues all its loads at once, warps split the depth", "auto", 0.45,
              conv_launches.refuse_unless, arithmetics=BF16, configurations=of.dense_shapes),
    Candidate("low_latency_fire", ("conv2d", "conv2d"), FORWARD, fire_launches.write_fire,
              "both expand layers of a fire, each pixel once in shared memory, warps split the depth", "auto", 0.55,
              fire_launches.refuse_fire, arithmetics=BF16, configurations=of.fire_shapes),
    Candidate("low_latency_pool", ("max_pool", "conv2d"), FORWARD, conv_launches.write_pooled,
              "a max pool computed while the next 1x1 convolution loads", "auto", 0.5,
              conv_launches.refuse_pooled, arithmetics=BF16, configurations=of.pooled_shapes),
    Candidate("low_latency_add", ("conv2d", "add"), FORWARD, conv_launches.write_added,
              "the addition after a convolution, computed before its output is stored", "auto", 0.5,
              conv_launches.refuse_added, arithmetics=BF16, configurations=of.added_shapes),
    Candidate("low_latency_expand", ("conv2d", "depthwise_conv2d"), FORWARD, expand_launches.write_expand,
              "the expansion stays in shared memory for the next depthwise convolution", "auto", 0.6,
              expand_launches.refuse_expand, arithmetics=BF16, configurations=of.expand_shapes),
)  # fmt: skip
