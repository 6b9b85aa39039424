"""Eight-bit quantisation of a trained network: scales from observed ranges, weights rounded channel by channel.

Activations are uint8 with a zero point per tensor, weights int8 without one per output channel, biases int32 in the
scale of the products, sums exact. Sources: Jacob et al., "Quantization and training of neural networks for efficient
integer-arithmetic-only inference", 2018; Krishnamoorthi, "Quantizing deep convolutional networks", 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from core.graph import PHOTO, Graph, Node
from core.ops.contract import Array, Arrays, Call
from core.ops.op_table import OPS
from core.program import FUSED_ACTIVATIONS

Range: TypeAlias = tuple[float, float]

WEIGHTED: Final = ("conv2d", "depthwise_conv2d", "dense")
TIED: Final = ("max_pool", "flatten", "concat")
"""Ops that select or move numbers: inputs and output share one scale, so nothing is rounded twice."""
LEVELS: Final = 255
LARGEST_WEIGHT: Final = 127
"""Processors without VNNI add two products in 16 bits and saturate: on 136 validation photos the shipped model's KL
divergence from float32 is then 0.0087 instead of 0.0056 in onnxruntime. Seven bits never saturate, but have 0.0100
everywhere."""
LARGEST_SUM: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Scale:
    """The quantisation of x as ``round(x / step) + zero`` in 0..255."""

    step: float
    zero: int


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """A network in eight bits. `graph`: batch norm folded, no dropout.

    scales: of every stored tensor, by node name. weights: int8, biases int32, other parameters float32, by full name.
    steps: float32 ``(filters,)`` of each weight and bias, by full name.
    """

    graph: Graph
    scales: Mapping[str, Scale]
    weights: Mapping[str, Array]
    steps: Mapping[str, Array]


def without_dropout(graph: Graph) -> Graph:
    return graph.without([node.name for node in graph.nodes if node.op == "dropout"])


def stored_tensors(graph: Graph) -> tuple[str, ...]:
    """Return the nodes whose output is stored in eight bits: all but the logits and inputs of fused activations."""
    return tuple(n.name for n in graph.nodes if n.name != graph.output and not _is_activated(graph, n))


def _is_activated(graph: Graph, node: Node) -> bool:
    users = graph.users(node.name)
    return node.name != PHOTO and len(users) == 1 and users[0].op in FUSED_ACTIVATIONS


def photo_range(graph: Graph) -> Range:
    attributes = graph.nodes[0].attributes
    mean, std = (np.asarray(attributes[key], np.float64) for key in ("mean", "std"))
    return float((-mean / std).min()), float(((1 - mean) / std).max())


def quantise(graph: Graph, weights: Arrays, ranges: Mapping[str, Range]) -> Quantised:
    """Quantise the network. `ranges`: least and largest value of every stored tensor but the photo."""
    scales = _choose_scales(graph, {**ranges, PHOTO: photo_range(graph)})
    rounded: dict[str, Array] = {}
    steps: dict[str, Array] = {}
    for node in graph.nodes:
        if node.op not in WEIGHTED:
            rounded |= {f"{node.name}.{p.role}": weights[f"{node.name}.{p.role}"] for p in node.parameters}
            continue
        name, bias = f"{node.name}.weight", f"{node.name}.bias"
        weight = np.asarray(weights[name], np.float32)
        top = np.abs(weight.reshape(len(weight), -1)).max(axis=1)
        step = np.where(top > 0, top / LARGEST_WEIGHT, 1.0).astype(np.float32)
        column = step.reshape(-1, *(1,) * (weight.ndim - 1))
        rounded[name], steps[name] = np.rint(weight / column).astype(np.int8), step
        if bias in weights:
            steps[bias] = step * np.float32(scales[node.inputs[0]].step)
            whole = np.rint(weights[bias].astype(np.float64) / steps[bias])
            rounded[bias] = np.clip(whole, -LARGEST_SUM, LARGEST_SUM).astype(np.int32)
    return Quantised(graph, scales, rounded, steps)


def _choose_scales(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Scale]:
    """Return one scale for each set of tied tensors, in which zero is exactly representable."""
    owner = {name: name for name in stored_tensors(graph)}

    def find(name: str) -> str:
        while owner[name] != name:
            name = owner[name]
        return name

    for node in graph.nodes:
        if node.op in TIED and node.name in owner:
            for other in node.inputs:
                owner[find(other)] = find(node.name)
    low, high = dict.fromkeys(owner, 0.0), dict.fromkeys(owner, 0.0)
    for name in owner:
        root = find(name)
        low[root], high[root] = min(low[root], ranges[name][0]), max(high[root], ranges[name][1])
    return {name: _make_scale(low[find(name)], high[find(name)]) for name in owner}


def _make_scale(low: float, high: float) -> Scale:
    step = float(np.float32(max(high - low, 1e-6) / LEVELS))
    return Scale(step, int(np.clip(np.rint(-low / step), 0, LEVELS)))


def on_grid(values: Array, scale: Scale) -> Array:
    whole = np.clip(np.rint(values / np.float32(scale.step)) + scale.zero, 0, LEVELS)
    return np.asarray((whole - scale.zero) * np.float32(scale.step), np.float32)


def simulate(quantised: Quantised, photos: Array) -> Array:
    """Return logits ``(N, classes)`` of normalised photos ``(N, H, W, C)`` as eight-bit hardware without saturation
    computes them, except for float32's rounding of sums."""
    graph, scales = quantised.graph, quantised.scales
    values = {PHOTO: on_grid(photos, scales[PHOTO])}
    for node in graph.nodes[1:]:
        owned = {p.role: restored(quantised, f"{node.name}.{p.role}") for p in node.parameters}
        inputs = [values[i] for i in node.inputs]
        output = OPS[node.op].forward(Call(node.attributes, inputs, owned)).output
        values[node.name] = on_grid(output, scales[node.name]) if node.name in scales else output
    return values[graph.output]


def restored(quantised: Quantised, name: str) -> Array:
    array = quantised.weights[name]
    if name not in quantised.steps:
        return array
    return array.astype(np.float32) * quantised.steps[name].reshape(-1, *(1,) * (array.ndim - 1))
