"""A second branch of a network: a copy of its last layers, trained on a few photos of one place.

The network itself is unchanged, so little is forgotten: a gate, a linear layer on the network's features, opens the
branch for photos like those of the place, and the branch then moves the logits of the classes that occur there.
Training the last layers themselves names photos of the place as well, but forgets the other crops.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.data.augment import draw_rows
from core.device import Optimizer, PhotoBatch
from core.diagnosis.features import feature_node, head_node
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head
from core.diagnosis.model_file import with_photo_side
from core.graph import PHOTO, Attribute, Graph, Node
from core.ops.builder import make_node, with_loss
from core.ops.contract import Array
from core.optim.learning_rate import one_cycle
from core.plan import compile_plan

STRIDE: Final = 16
"""The branch starts at the first map at most 1/16 as wide as the photo: below are the layers that cost most."""
PREFIX: Final = "place."
"""Of the names of the branch's nodes."""
STEPS: Final = 100
BATCH: Final = 8
RATE: Final = 5e-4
WARM_UP: Final = 20
"""Steps in which the learning rate rises."""
SMOOTHING: Final = 0.05
GATE_PENALTY: Final = 1e-3
GATE_START: Final = 1.0
"""Logit of "photo of the place" from which the gate opens."""
GATE_WIDTH: Final = 0.5
"""It is fully open at so much more."""


def branch_point(graph: Graph) -> str:
    """Name of the node from which the branch starts: all later nodes depend on it alone; the photo if there is none.

    It is before the feature map, whose copy in the branch is gated.
    """
    at = {node.name: i for i, node in enumerate(graph.nodes)}
    for i, node in enumerate(graph.nodes[: at[feature_node(graph) or PHOTO]]):
        small = len(node.shape) == 3 and node.shape[0] * STRIDE <= graph.photo_shape[0]
        if small and all(at[name] >= i for later in graph.nodes[i + 1 :] for name in later.inputs):
            return node.name
    return PHOTO


def branch_nodes(graph: Graph) -> tuple[Node, ...]:
    """The nodes that the branch has copies of."""
    names = [node.name for node in graph.nodes]
    return graph.nodes[names.index(branch_point(graph)) + 1 :]


def train_branch(
    graph: Graph, weights: Mapping[str, Array], photos: Array, labels: Array, seed: int, device: str, threads: int
) -> dict[str, Array]:
    """Weights after training the branch's layers on photos uint8 ``(N, side, side, 3)``, as many of each class."""
    side, source = 7 * graph.photo_shape[0] // 9, photos.shape[1]  # crops are enlarged, photos in use are not
    smaller, learned = with_photo_side(graph, side), {node.name for node in branch_nodes(graph)}
    frozen = [name for name in graph.parameters() if name.rpartition(".")[0] not in learned]
    order = draw_order(labels, STEPS * BATCH, seed).reshape(STEPS, BATCH)
    with closing(compile_plan(
        with_loss(smaller, SMOOTHING, ()), device=device, batch=BATCH, training=True, frozen=frozen, seed=seed,
        threads=threads, optimizer=Optimizer("adamw", weight_decay=1e-2),
    )) as plan:  # fmt: skip
        plan.load(weights)
        for step, rows in enumerate(order):
            augmentation = draw_rows("strong", seed, step, rows, source, side, np.arange(BATCH))
            batch = PhotoBatch(photos[rows], augmentation, labels[rows].astype(np.int32))
            plan.train_step(batch, RATE * one_cycle(step, WARM_UP, STEPS))
        return plan.weights()


def draw_order(labels: Array, count: int, seed: int) -> Array:
    """Indices ``(count,)`` of photos: classes alternate, and each class shows all its photos before one comes again."""
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    each = -(-count // len(classes))
    columns = [np.concatenate([rng.permutation(rows) for _ in range(-(-each // len(rows)))])[:each] for rows in classes]
    return np.stack(columns, axis=1).ravel()[:count]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """Opens a branch by ``clip(features @ weight + bias, 0, 1)``; weight ``(F,)``."""

    weight: Array
    bias: float

    def open(self, features: Array) -> Array:
        return np.asarray(np.clip(features @ self.weight + self.bias, 0, 1))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Weights of a trained branch and of its head, under the names of the layers that they are copies of.

    own: indices of the classes that it separates; costs: what is taken from their logits, by the branch's factor.
    """

    weights: Mapping[str, Array]
    gate: Gate
    own: Array
    costs: Mapping[float, float]


def fit_gate(photos: Array, others: Array) -> Gate:
    """The gate that is open for features ``(N, F)`` of the place, and closed for those of other photos ``(M, F)``."""
    start = LinearHead(np.zeros((2, photos.shape[1])), np.zeros(2))
    closed, opened = (Samples(x, np.full(len(x), side), np.arange(len(x))) for side, x in enumerate((others, photos)))
    fitted = fit_head(start, opened, closed, GATE_PENALTY)
    weight, bias = fitted.weight[1] - fitted.weight[0], fitted.bias[1] - fitted.bias[0]
    return Gate(weight / GATE_WIDTH, float(bias - GATE_START) / GATE_WIDTH)


def join_branch(
    graph: Graph, weights: Mapping[str, Array], branch: Branch, share: float
) -> tuple[Graph, dict[str, Array]]:
    """The network with the branch, whose logits count `share` times. The network's head stays the last with weights."""
    head = head_node(graph)
    at, copied = graph.nodes.index(head), branch_nodes(graph)
    known, joined = {node.name: node for node in graph.nodes[:at]}, dict(weights)
    renamed = {node.name: PREFIX + node.name for node in copied}

    def add(op: str, name: str, *inputs: str, **attributes: Attribute) -> str:
        known[PREFIX + name] = make_node(op, PREFIX + name, inputs, attributes, known)
        return PREFIX + name

    def dense(name: str, source: str, weight: Array, bias: Array) -> str:
        joined[f"{PREFIX}{name}.weight"] = weight.astype(np.float32)
        joined[f"{PREFIX}{name}.bias"] = bias.astype(np.float32)
        return add("dense", name, source, units=len(weight), bias=True)

    gate = branch.gate  # relu6 ends at 6: the layers that read it divide by that
    opened = add("relu6", "open", dense("gate", head.inputs[0], 6 * gate.weight[None], np.array([6 * gate.bias])))
    for node in copied[: copied.index(head)]:
        add(node.op, node.name, *(renamed.get(name, name) for name in node.inputs), **node.attributes)
        joined |= {f"{PREFIX}{node.name}.{p.role}": branch.weights[f"{node.name}.{p.role}"] for p in node.parameters}
        if node.name == feature_node(graph):
            channels = node.shape[-1]
            factor = dense("factor", opened, np.full((channels, 1), 1 / 6), np.zeros(channels))
            renamed[node.name] = add("multiply", "gated", renamed[node.name], factor)
    rows, bias = (_apart(branch.weights[f"{head.name}.{role}"], branch.own, share) for role in ("weight", "bias"))
    bias[branch.own] -= branch.costs[share]
    moved = add("add", "moved", dense("logits", renamed[head.inputs[0]], rows, np.zeros(len(bias))),
                dense("bias", opened, bias[:, None] / 6, np.zeros(len(bias))))  # fmt: skip
    known |= {node.name: node for node in graph.nodes[at:]}
    output = add("add", "sum", graph.output, moved)
    return Graph(graph.name, tuple(known.values()), output), joined


def _apart(array: Array, own: Array, share: float) -> Array:
    """`share` times the rows of these classes less their mean; 0 for the others."""
    rows = np.zeros_like(array)
    rows[own] = share * (array[own] - array[own].mean(axis=0))
    return rows


def is_branched(graph: Graph) -> bool:
    return graph.output.startswith(PREFIX)
