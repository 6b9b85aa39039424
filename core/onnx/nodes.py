"""All supported ONNX ops, and the rule that converts each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.onnx.layers import (
    Rule,
    elementwise,
    read_add,
    read_average_pool,
    read_batch_norm,
    read_clip,
    read_conv,
    read_dropout,
    read_gemm,
    read_global_average_pool,
    read_hard_sigmoid,
    read_max_pool,
    read_multiply,
    read_softmax,
)
from core.onnx.reshaping import (
    read_concat,
    read_constant,
    read_flatten,
    read_identity,
    read_pad,
    read_reshape,
    read_transpose,
    read_unsqueeze,
)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "Add": read_add,
        "AveragePool": read_average_pool,
        "BatchNormalization": read_batch_norm,
        "Clip": read_clip,
        "Concat": read_concat,
        "Constant": read_constant,
        "Conv": read_conv,
        "Dropout": read_dropout,
        "Flatten": read_flatten,
        "Gemm": read_gemm,
        "GlobalAveragePool": read_global_average_pool,
        "HardSigmoid": read_hard_sigmoid,
        "HardSwish": elementwise("hard_swish"),
        "Identity": read_identity,
        "MaxPool": read_max_pool,
        "Mul": read_multiply,
        "Pad": read_pad,
        "Relu": elementwise("relu"),
        "Reshape": read_reshape,
        "Sigmoid": elementwise("sigmoid"),
        "Softmax": read_softmax,
        "Transpose": read_transpose,
        "Unsqueeze": read_unsqueeze,
    }
)
