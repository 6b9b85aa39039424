"""A graph lowered to fused steps over buffers, the same for every device.

Batch norm is folded into the convolution before it (inference), an activation is fused into the step before it, the
inputs of a concat write channel slices of its buffer, dropout is removed at inference, flatten only changes the shape.
The plan of a device then chooses the kernels and lays out the buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from core.errors import ModelFileError
from core.graph import LABEL, PHOTO, Attributes, Graph, Node, Parameter, Shape
from core.ops.activation import ACTIVATIONS
from core.ops.attributes import read_number
from core.ops.contract import Array, Cost, volume
from core.ops.op_table import OPS
from core.ops.registry import KernelCase

FUSED_ACTIVATIONS: Final = tuple(one.name for one in ACTIVATIONS.values() if one.fuses)
TAKES_ACTIVATION: Final = ("conv2d", "depthwise_conv2d", "dense", "batch_norm", "add")
NODE: Final = "node"
ALIGNMENT: Final = 16
"""Parameters start at multiples of 16 floats (64 bytes), a cache line."""


@dataclass(frozen=True, slots=True)
class Value:
    """Input or output of a step: channels ``[channel, channel + shape[-1])`` of a buffer."""

    buffer: str
    shape: Shape
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A node with its fused activation. node: its name, which prefixes the parameters; inputs: without labels."""

    node: str
    op: str
    attributes: Attributes
    inputs: tuple[Value, ...]
    output: Value
    activation: str
    parameters: tuple[Parameter, ...]
    cost: Cost


def concat_slices(step: Step) -> list[tuple[Value, Value]]:
    """Return each input of a concat with the channels of its output that it becomes."""
    slices, channel = [], step.output.channel
    for value in step.inputs:
        slices.append((value, Value(step.output.buffer, value.shape, channel)))
        channel += value.shape[-1]
    return slices


@dataclass(frozen=True, slots=True)
class Program:
    """Steps in order. buffers: name to shape per photo; values: outputs of the materialized nodes; output: logits."""

    graph: Graph
    training: bool
    steps: tuple[Step, ...]
    buffers: Mapping[str, Shape]
    values: Mapping[str, Value]
    output: Value

    def uses_batch_statistics(self) -> bool:
        """Return whether a step depends on several images, so that images cannot be computed independently."""
        return self.training and any(s.op == "batch_norm" and not s.attributes["frozen"] for s in self.steps)

    @property
    def target_size(self) -> int:
        """Length of a photo's target, the number of classes; 0 if the loss uses labels only."""
        return self.output.shape[-1] if self.training and self.steps[-1].attributes.get("targets") else 0


def lower(
    graph: Graph, training: bool, outputs: Iterable[str] = (), fused: Collection[str] = FUSED_ACTIVATIONS
) -> Program:
    """Lower a graph. outputs: further nodes whose values must stay readable; fused: activations that the device's
    kernels apply to their results.

    For training the graph ends with its loss (`core.ops.builder.with_loss`); for inference fold batch norm first
    (`fold_batch_norm`).
    """
    kept = {graph.output, *outputs}
    places = _concat_places(graph)
    values = {PHOTO: Value(PHOTO, graph.photo_shape)}
    buffers = {PHOTO: graph.photo_shape}
    steps: list[Step] = []
    value_of = partial(_value_of, graph, places, buffers)
    for node in graph.nodes[1:]:
        inputs = tuple(values[i] for i in node.inputs if i != LABEL)
        if node.op == "flatten" or (node.op == "dropout" and not training):
            values[node.name] = replace(inputs[0], shape=node.shape)
        elif node.op == "concat" and all(places.get(name, ("",))[0] == node.name for name in node.inputs):
            values[node.name] = value_of(node)
        elif node.op in fused and _joins_producer(graph, node, kept, training):
            last = steps[-1]
            values[node.name] = value_of(node)
            steps[-1] = replace(last, output=values[node.name], activation=node.op)
            del values[last.node], buffers[last.node]
        else:
            values[node.name] = value_of(node)
            shapes = [v.shape for v in inputs]
            cost = OPS[node.op].cost(node.attributes, shapes, node.shape)
            steps.append(
                Step(node.name, node.op, node.attributes, inputs, values[node.name], "", node.parameters, cost)
            )
    return Program(graph, training, tuple(steps), buffers, values, values[graph.output])


def lower_case(case: KernelCase, training: bool) -> Program:
    """A program of one step, `NODE`, that reads x (and x2) and writes out. It may be a matrix product, which is no op
    of a network."""
    inputs, output, op = tuple(map(Value, case.names, case.inputs)), Value("out", case.output), OPS.get(case.op)
    parameters = op.parameters(case.attributes, case.inputs) if op else ()
    cost = op.cost(case.attributes, case.inputs, case.output) if op else Cost(0, 0)
    step = Step(NODE, case.op, case.attributes, inputs, output, case.activation, parameters, cost)
    graph = Graph("case", (Node(NODE, case.op, case.names, case.output, case.attributes, parameters),), NODE)
    values = {value.buffer: value for value in (*inputs, output)}
    buffers = {name: value.shape for name, value in values.items()}
    return Program(graph, training, (step,), buffers, values, output)


def _value_of(graph: Graph, places: Mapping[str, tuple[str, int]], buffers: dict[str, Shape], node: Node) -> Value:
    """The output of a node: a slice of a concat's buffer, or a new buffer."""
    if node.name in places:
        owner, channel = places[node.name]
        parent = _value_of(graph, places, buffers, graph.node(owner))
        return Value(parent.buffer, node.shape, parent.channel + channel)
    buffers[node.name] = node.shape
    return Value(node.name, node.shape)


def _joins_producer(graph: Graph, node: Node, kept: set[str], training: bool) -> bool:
    """Whether an activation is fused into the step before it: nothing else, its gradient included, reads the result."""
    if training and ACTIVATIONS[node.op].needs_input:
        return False
    producer = graph.node(node.inputs[0])
    return (
        producer.op in TAKES_ACTIVATION
        and producer.name not in kept
        and len(graph.users(producer.name)) == 1
        and graph.nodes[graph.nodes.index(node) - 1] is producer
    )


def _concat_places(graph: Graph) -> dict[str, tuple[str, int]]:
    """Node name to (concat, first channel) for every input that can write into its concat's buffer."""
    places: dict[str, tuple[str, int]] = {}
    for concat in graph.nodes:
        if concat.op != "concat":
            continue
        inputs = [graph.node(name) for name in concat.inputs]
        owns_memory = all(n.op not in ("photo", "flatten", "dropout") for n in inputs)
        if not owns_memory or len(set(concat.inputs)) < len(inputs):
            continue
        if any(n.name in places for n in inputs):
            continue
        channel = 0
        for node in inputs:
            places[node.name] = (concat.name, channel)
            channel += node.shape[-1]
    return places


def wanted_buffers(program: Program, trains: Callable[[Step, str], bool]) -> frozenset[str]:
    """Buffers whose gradient a trained parameter needs; trains: whether a step's parameter role is trained."""
    wanted: set[str] = set()
    for step in program.steps:
        learns = any(trains(step, p.role) for p in step.parameters)
        if learns or any(v.buffer in wanted for v in step.inputs):
            wanted.add(step.output.buffer)
    return frozenset(wanted)


def fold_batch_norm(graph: Graph) -> Graph:
    """The graph for inference, with each batch norm after a convolution folded into it."""
    nodes: list[Node] = []
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        inputs = tuple(renamed.get(i, i) for i in node.inputs)
        previous = nodes[-1] if nodes else None
        if previous is not None and _is_foldable(graph, node, previous):
            renamed[node.name] = previous.name
            bias = Parameter("bias", (previous.shape[-1],), decay=False)
            weight = next(p for p in previous.parameters if p.role == "weight")
            attributes = {**previous.attributes, "bias": True}
            nodes[-1] = replace(previous, attributes=attributes, parameters=(weight, bias))
        else:
            nodes.append(replace(node, inputs=inputs))
    return Graph(graph.name, tuple(nodes), renamed.get(graph.output, graph.output))


def fold_weights(graph: Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights of `fold_batch_norm(graph)` from those of `graph` (computed in float64)."""
    folded = {name: np.asarray(array) for name, array in weights.items()}
    for before, node in zip(graph.nodes, graph.nodes[1:], strict=False):
        if not _is_foldable(graph, node, before):
            continue
        part = {r: folded.pop(f"{node.name}.{r}").astype(np.float64) for r in
                ("weight", "bias", "running_mean", "running_var")}
        scale = part["weight"] / np.sqrt(part["running_var"] + read_number(node.attributes, "epsilon", 1e-12, 1.0))
        weight = folded[f"{before.name}.weight"].astype(np.float64)
        old = folded.get(f"{before.name}.bias", np.zeros(scale.shape)).astype(np.float64)
        bias = part["bias"] + (old - part["running_mean"]) * scale
        folded[f"{before.name}.weight"] = (weight * scale[:, None, None, None]).astype(np.float32)
        folded[f"{before.name}.bias"] = bias.astype(np.float32)
    return folded


def _is_foldable(graph: Graph, node: Node, before: Node) -> bool:
    return (
        node.op == "batch_norm"
        and before.op in ("conv2d", "depthwise_conv2d")
        and node.inputs[0] == before.name
        and len(graph.users(before.name)) == 1
    )


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """Positions of the parameters in the flat float32 buffer, trained ones first, then statistics.

    offsets: full name to (first float, shape); trained, size: numbers of floats with padding; decayed: ranges of floats
    with weight decay.
    """

    offsets: Mapping[str, tuple[int, Shape]]
    trained: int
    size: int
    decayed: tuple[tuple[int, int], ...]


IDLE, LEARNS, DECAYS = range(3)
"""What an update does with a float: nothing, since it is padding or frozen; train it; also apply weight decay."""


def list_roles(layout: ParameterLayout, frozen: frozenset[str]) -> Array:
    """Return IDLE, LEARNS or DECAYS for each trained float, as uint8."""
    roles = np.zeros(layout.trained, np.uint8)
    decayed = {first for first, _ in layout.decayed}
    for name, (first, shape) in layout.offsets.items():
        if first < layout.trained and name not in frozen:
            roles[first : first + volume(shape)] = DECAYS if first in decayed else LEARNS
    return roles


def flatten_parameters(weights: Mapping[str, Array], layout: ParameterLayout) -> Array:
    """All parameters in one flat float32 buffer, padded with zeros. Raises ModelFileError if they do not match."""
    check_weights(weights, {name: shape for name, (_, shape) in layout.offsets.items()})
    flat = np.zeros(layout.size, np.float32)
    for name, (first, shape) in layout.offsets.items():
        flat[first : first + volume(shape)] = np.asarray(weights[name], np.float32).ravel()
    return flat


def name_parameters(flat: Array, layout: ParameterLayout) -> dict[str, Array]:
    """Copies of the parameters in a flat buffer by full name, without those beyond its end."""
    return {
        name: flat[first : first + volume(shape)].reshape(shape).copy()
        for name, (first, shape) in layout.offsets.items()
        if first < flat.size
    }


def lay_out_parameters(graph: Graph) -> ParameterLayout:
    """Flat layout in node order, every parameter aligned to 64 bytes."""
    parameters = graph.parameters()
    offsets: dict[str, tuple[int, Shape]] = {}
    decayed: list[tuple[int, int]] = []
    end = 0
    trained = 0
    for wanted in (True, False):
        for name, parameter in parameters.items():
            if parameter.trained is not wanted:
                continue
            offsets[name] = (end, parameter.shape)
            if wanted and parameter.decay:
                decayed.append((end, end + parameter.size))
            end += -(-parameter.size // ALIGNMENT) * ALIGNMENT
        if wanted:
            trained = end
    return ParameterLayout(offsets, trained, end, tuple(decayed))


def check_weights(weights: Mapping[str, Array], shapes: Mapping[str, Shape]) -> None:
    """Raise ModelFileError that names missing, extra and misshapen arrays."""
    found = [f"{name} is missing" for name in shapes if name not in weights]
    found += [f"{name} belongs to no layer" for name in weights if name not in shapes]
    found += [f"{name} is {array.dtype} {array.shape} instead of float32 {shapes[name]}"
              for name, array in weights.items() if array.shape != shapes.get(name, array.shape)]
    if found:
        raise ModelFileError("The weights do not fit the network: " + "; ".join(found[:5]) + ".")
