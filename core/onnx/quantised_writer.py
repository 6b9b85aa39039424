"""Writes a quantised network as ONNX with QuantizeLinear and DequantizeLinear (QDQ), the form that runtimes fuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from core.graph import PHOTO
from core.onnx.quantisation import Quantised, Scale
from core.onnx.writer import LOGITS, WRITERS, constants_of, serialise
from core.ops.flatten import channels_first_of


def write_quantised_onnx(
    quantised: Quantised, classes: tuple[str, ...] = (), temperature: float = 1.0, more: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of an ONNX file that computes "logits" from "photo", float32 outside and eight bits inside."""
    graph, scales = quantised.graph, quantised.scales
    initializers: list[Any] = constants_of(graph)
    nodes: list[Any] = []
    names: dict[str, str] = {}
    for node in graph.nodes:
        stored = node.name in scales
        raw = LOGITS if node.name == graph.output else f"{node.name}.float" if stored else node.name
        raw = PHOTO if node.name == PHOTO else raw
        owned = []
        for parameter in node.parameters:
            name = f"{node.name}.{parameter.role}"
            array = channels_first_of(graph, node, quantised.weights[name])
            owned.append(_parameter(name, array, quantised, nodes, initializers))
        if node.name != PHOTO:
            nodes += WRITERS[node.op](node, (*(names[i] for i in node.inputs), *owned), raw)
        names[node.name] = _store(node.name, raw, scales[node.name], nodes, initializers) if stored else raw
    return serialise(graph, nodes, initializers, classes, temperature, more)


def _parameter(name: str, array: Any, quantised: Quantised, nodes: list[Any], initializers: list[Any]) -> str:
    """The tensor that the layer reads: the parameter itself, or what its whole numbers stand for."""
    if name not in quantised.steps:
        initializers.append(numpy_helper.from_array(array, name))
        return name
    steps = quantised.steps[name]
    whole, step, zero = f"{name}.whole", f"{name}.step", f"{name}.zero"
    initializers += [
        numpy_helper.from_array(array, whole),
        numpy_helper.from_array(steps, step),
        numpy_helper.from_array(np.zeros(len(steps), array.dtype), zero),
    ]
    nodes.append(helper.make_node("DequantizeLinear", [whole, step, zero], [name], f"{name}.restore", axis=0))
    return name


def _store(name: str, raw: str, scale: Scale, nodes: list[Any], initializers: list[Any]) -> str:
    """Into eight bits and back; the tensor that readers take."""
    step, zero, whole, back = (f"{name}.{part}" for part in ("step", "zero", "whole", "restored"))
    initializers += [
        numpy_helper.from_array(np.array(scale.step, np.float32), step),
        numpy_helper.from_array(np.array(scale.zero, np.uint8), zero),
    ]
    nodes.append(helper.make_node("QuantizeLinear", [raw, step, zero], [whole], f"{name}.store"))
    nodes.append(helper.make_node("DequantizeLinear", [whole, step, zero], [back], f"{name}.restore"))
    return back
