"""All supported ONNX ops, and the rule that converts each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from core.onnx import layers, reshaping

RULES: Final[Mapping[str, layers.Rule]] = MappingProxyType(
    {
        "Add": layers.read_add,
        "AveragePool": layers.read_average_pool,
        "BatchNormalization": layers.read_batch_norm,
        "Clip": layers.read_clip,
        "Concat": reshaping.read_concat,
        "Constant": reshaping.read_constant,
        "Conv": layers.read_conv,
        "Dropout": layers.read_dropout,
        "Flatten": reshaping.read_flatten,
        "Gemm": layers.read_gemm,
        "GlobalAveragePool": layers.read_global_average_pool,
        "HardSigmoid": layers.read_hard_sigmoid,
        "HardSwish": layers.elementwise("hard_swish"),
        "Identity": reshaping.read_identity,
        "MaxPool": layers.read_max_pool,
        "Mul": layers.read_multiply,
        "Pad": reshaping.read_pad,
        "Relu": layers.elementwise("relu"),
        "Reshape": reshaping.read_reshape,
        "Sigmoid": layers.elementwise("sigmoid"),
        "Softmax": layers.read_softmax,
        "Transpose": reshaping.read_transpose,
        "Unsqueeze": reshaping.read_unsqueeze,
    }
)
