"""The importer of an ONNX graph: the network built so far, the layout of every tensor, and values of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from core.errors import ModelFileError
from core.graph import LABEL, PHOTO, Attribute, Graph, Node, Shape
from core.ops.builder import make_node
from core.ops.contract import Array

Attributes: TypeAlias = dict[str, Any]
"""Attributes of an ONNX node: numbers, bytes, lists, or arrays."""

NCHW: Final = (0, 1, 2, 3)
"""Order of the axes (photo, channel, row, column), unless they were transposed; flat features have the first two."""


@dataclass(frozen=True, slots=True)
class OnnxValue:
    """A computed tensor: our node of the same value, and its layout in the ONNX file.

    axes: which of (photo, channel, row, column) each axis of the ONNX tensor is. pad: zeros around it that the next
    convolution takes over. image: (height, width, channels) of a flattened tensor whose order is still channels first.
    """

    node: str
    axes: tuple[int, ...] = NCHW
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    image: Shape | None = None


@dataclass
class Importer:
    """Collects nodes and weights. budget: bytes of weights that may still be added; batch: photos of the input."""

    opset: int
    budget: int
    batch: int = 1
    nodes: dict[str, Node] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, OnnxValue] = field(default_factory=dict)

    def add(self, op: str, onnx_node: Any, inputs: tuple[str, ...], **attributes: Attribute) -> str:
        """Append a node named like the ONNX node, or like its output, or numbered."""
        wanted = str(onnx_node.name or onnx_node.output[0])
        name, number = wanted, 2
        while name in self.nodes or name in ("", PHOTO, LABEL):
            name, number = f"{wanted or op}_{number}", number + 1
        self.nodes[name] = make_node(op, name, inputs, attributes, self.nodes)
        return name

    def own(self, node: str, role: str, array: Array) -> None:
        """Set a node's weights, float32 and contiguous. Raises ModelFileError where the shape does not fit."""
        shape = next(p.shape for p in self.nodes[node].parameters if p.role == role)
        if array.shape != shape:
            raise ModelFileError(f"{node}.{role} has the shape {array.shape} where {shape} follows from the graph.")
        self.budget -= 4 * array.size
        if self.budget < 0:
            raise ModelFileError("The nodes of this file share weights so often that they would need too much memory.")
        self.weights[f"{node}.{role}"] = np.ascontiguousarray(array, np.float32)

    def value(self, name: str) -> OnnxValue:
        """Return a computed tensor. Raises ModelFileError where it is a constant or does not exist yet."""
        if name in self.values:
            return self.values[name]
        if name in self.constants:
            raise ModelFileError(f"{name!r} is a constant where the output of another node is needed.")
        raise ModelFileError(f"The tensor {name!r} is used before it is computed.")

    def image(self, name: str, op: str, pad: bool = False) -> OnnxValue:
        """Return a tensor that is not transposed and, unless `pad`, has no pending padding. Raises ModelFileError."""
        value = self.value(name) if pad else self.unpadded(name, op)
        if value.axes != NCHW[: len(value.axes)]:
            raise ModelFileError(f"A Transpose before {op} cannot be folded.")
        return value

    def unpadded(self, name: str, op: str) -> OnnxValue:
        """Return a tensor without pending padding. Raises ModelFileError."""
        value = self.value(name)
        if any(value.pad):
            raise ModelFileError(f"A Pad before {op} is not supported, only one before Conv.")
        return value

    def constant(self, node: Any, index: int) -> Array | None:
        """Return the constant input `index` of a node, or None where it is omitted. Raises ModelFileError."""
        if len(node.input) <= index or not node.input[index]:
            return None
        if node.input[index] not in self.constants:
            raise ModelFileError(f"Input {index} of {describe(node)} must be a constant.")
        return self.constants[node.input[index]]

    def integers(self, node: Any, attributes: Attributes, key: str) -> tuple[int, ...]:
        """Return an attribute that newer opsets have as input 1 instead, such as axes. Raises ModelFileError."""
        given = self.constant(node, 1)
        return tuple(attributes.get(key, ())) if given is None else to_ints(given, f"The {key} of {describe(node)}")

    def shape(self, value: OnnxValue) -> Shape:
        return self.nodes[value.node].shape

    def graph(self, name: str, output: str) -> Graph:
        """Return the graph of the nodes that the output needs, in order."""
        needed = {output, PHOTO}
        for node in reversed(self.nodes.values()):
            if node.name in needed:
                needed |= set(node.inputs)
        return Graph(name, tuple(n for n in self.nodes.values() if n.name in needed), output)


def describe(node: Any) -> str:
    """Return op and name of an ONNX node, as viewers show them."""
    return f"{node.op_type} {node.name or (node.output[0] if node.output else '')!r}"


def attributes_of(node: Any, known: tuple[str, ...]) -> Attributes:
    """Return the attributes by name. Raises ModelFileError for one that is not `known`."""
    found: Attributes = {}
    for attribute in node.attribute:
        if attribute.name not in known:
            raise ModelFileError(f"{describe(node)} has the attribute {attribute.name!r}, which is not supported.")
        if attribute.ref_attr_name:
            raise ModelFileError(f"{describe(node)} refers to an attribute of a function, which is not supported.")
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = to_array(value)
        elif isinstance(value, float):
            value = shortest(value)
        found[attribute.name] = value
    return found


def shortest(value: float) -> float:
    """Return the shortest decimal number with the float32 value of an attribute: 1e-05, not 9.99999974e-06."""
    return float(str(np.float32(value)))


READABLE: Final = (
    onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32,
    onnx.TensorProto.INT64, onnx.TensorProto.BOOL,
)  # fmt: skip
"""Types of numbers that are read."""

MAX_DIMENSIONS: Final = 8


def to_array(tensor: Any) -> Array:
    """Convert a TensorProto to an array of the same type. Raises ModelFileError."""
    name = tensor.name or "a constant"
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise ModelFileError(f"The values of {name} are in another file. Export it as one file (in PyTorch: "
                             "external_data=False).")
    if tensor.data_type not in READABLE:
        raise ModelFileError(f"The values of {name} are of type {tensor.data_type}, which is not supported.")
    dims = list(tensor.dims)
    if len(dims) > MAX_DIMENSIONS or any(d < 0 for d in dims):
        raise ModelFileError(f"{name} has the invalid shape {dims[:MAX_DIMENSIONS]}.")
    try:
        return np.asarray(numpy_helper.to_array(tensor))  # raises where the file has more or fewer numbers than stated
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"The values of {name} cannot be read ({error}).") from error


def to_ints(array: Array | None, name: str) -> tuple[int, ...]:
    """Convert to a list of whole numbers, such as a shape or pads. Raises ModelFileError."""
    if array is None or array.ndim > 1 or array.size > MAX_DIMENSIONS or array.dtype.kind != "i":
        raise ModelFileError(f"{name} must be a constant list of a few whole numbers.")
    return tuple(int(v) for v in array.ravel())


def to_number(array: Array | None, name: str) -> float:
    """Convert to one number. Raises ModelFileError."""
    if array is None or array.size != 1:
        raise ModelFileError(f"{name} must be one constant number.")
    return float(array.ravel()[0])
