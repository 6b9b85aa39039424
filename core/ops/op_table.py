"""All ops by name, in reading order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.ops.activation import ACTIVATION_OPS
from core.ops.batch_norm import BATCH_NORM
from core.ops.combination import ADD, CONCAT, MULTIPLY
from core.ops.contract import Op
from core.ops.dropout import DROPOUT
from core.ops.flatten import FLATTEN
from core.ops.loss import SIGMOID_CROSS_ENTROPY, SOFTMAX, SOFTMAX_CROSS_ENTROPY
from core.ops.photo import PHOTO_OP
from core.ops.pooling import AVG_POOL, GLOBAL_AVG_POOL, MAX_POOL
from core.ops.products import CONV2D, DENSE, DEPTHWISE_CONV2D

_ALL: Final = (
    PHOTO_OP, CONV2D, DEPTHWISE_CONV2D, MAX_POOL, AVG_POOL, GLOBAL_AVG_POOL, DENSE, *ACTIVATION_OPS, SOFTMAX,
    SOFTMAX_CROSS_ENTROPY, SIGMOID_CROSS_ENTROPY, CONCAT, ADD, MULTIPLY, BATCH_NORM, DROPOUT, FLATTEN,
)

OPS: Final[Mapping[str, Op]] = MappingProxyType({op.name: op for op in _ALL})
LOSSES: Final = (SOFTMAX_CROSS_ENTROPY.name, SIGMOID_CROSS_ENTROPY.name)
"""Ops that end a training graph."""
