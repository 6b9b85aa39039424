"""All ops by name, in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.ops.activation import ACTIVATION_OPS
from core.ops.add import ADD
from core.ops.avg_pool import AVG_POOL
from core.ops.batch_norm import BATCH_NORM
from core.ops.concat import CONCAT
from core.ops.contract import Op
from core.ops.conv2d import CONV2D
from core.ops.dense import DENSE
from core.ops.depthwise_conv2d import DEPTHWISE_CONV2D
from core.ops.dropout import DROPOUT
from core.ops.flatten import FLATTEN
from core.ops.global_avg_pool import GLOBAL_AVG_POOL
from core.ops.max_pool import MAX_POOL
from core.ops.multiply import MULTIPLY
from core.ops.photo import PHOTO_OP
from core.ops.sigmoid_cross_entropy import SIGMOID_CROSS_ENTROPY
from core.ops.softmax import SOFTMAX
from core.ops.softmax_cross_entropy import SOFTMAX_CROSS_ENTROPY

_ROWS: Final = (
    PHOTO_OP, CONV2D, DEPTHWISE_CONV2D, MAX_POOL, AVG_POOL, GLOBAL_AVG_POOL, DENSE, *ACTIVATION_OPS, SOFTMAX,
    SOFTMAX_CROSS_ENTROPY, SIGMOID_CROSS_ENTROPY, CONCAT, ADD, MULTIPLY, BATCH_NORM, DROPOUT, FLATTEN,
)

OPS: Final[Mapping[str, Op]] = MappingProxyType({op.name: op for op in _ROWS})
LOSSES: Final = (SOFTMAX_CROSS_ENTROPY.name, SIGMOID_CROSS_ENTROPY.name)
"""Ops that end a training graph."""
