"""A second branch of a network: a copy of its last layers, trained on a few photos of one place.

The network itself is unchanged, so little is forgotten. A gate, a linear layer on the network's features, opens the
branch for photos like those of the place. The branch then separates the classes that occur there, in place of the head,
which errs on such photos. Fine-tuning the last layers classifies the place's photos as well, but forgets other crops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from core.data.augment import draw_augmentation
from core.data.dataset import ReportProgress, ignore
from core.device import Optimizer, PhotoBatch, Plan
from core.diagnosis.features import feature_node, head_node
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head
from core.diagnosis.metrics import softmax
from core.diagnosis.model_file import with_photo_side
from core.graph import PHOTO, Attribute, Graph, Node
from core.ops.builder import make_node, with_loss
from core.ops.contract import Array
from core.optim.learning_rate import one_cycle
from core.plan import compile_plan

STRIDE: Final = 16
"""The branch starts at feature maps at most 1/16 as wide as the photo; earlier layers cost most."""
STEP: Final = 32
"""Sides are multiples of these pixels where those of photos in use are, so that no map is padded on one side only."""
PREFIX: Final = "place."
"""Prefix of the names of the branch's nodes."""
BY_CLASS: Final = (f"{PREFIX}logits", f"{PREFIX}bias")
"""Nodes of the branch with weights for each class of the network."""
OPTIMIZER: Final = Optimizer("adamw", weight_decay=1e-2, clip_norm=0.3)
"""Without clipping, the training of some branches diverges, and with them that of their mean."""
GATE_PENALTY: Final = 1e-3
GATE_WIDTH: Final = 0.5
"""Logit of "photo of the place" at which the gate is fully open; it opens from 0 on."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a branch is trained: steps, those in which the learning rate rises, its highest value, and photos a step.

    side: of the photos, by default `training_side`; smoothing: of labels; views: number of different batches, which
    repeat in the same order, by default as many as steps.
    """

    steps: int
    warm_up: int
    rate: float
    batch: int = 8
    side: int | None = None
    augmentation: str = "strong"
    smoothing: float = 0.05
    optimizer: Optimizer = OPTIMIZER
    views: int | None = None


FIRST: Final = Schedule(80, 16, 1e-3)
"""The learning rate is the best of those tried on two of three networks (benchmarks/results/adaptation.json)."""
LAST: Final = Schedule(120, 10, 3e-4, views=20)
"""Of the mean of several branches, on all photos, with their mean prediction as target (Hinton et al., "Distilling the
knowledge in a neural network", 2015); the mean alone is correct less often, for some draws by 7 points."""


def branch_nodes(graph: Graph) -> tuple[Node, ...]:
    """The nodes that the branch copies: those of which all inputs are copied or small maps (`STRIDE`).

    If the feature map is not among them, all nodes: `join_branch` gates its copy.
    """
    known, copied = set[str](), list[Node]()
    for node in graph.nodes[1:]:
        follows = known.issuperset(node.inputs)
        if follows:
            copied.append(node)
        if follows or (len(node.shape) == 3 and node.shape[0] * STRIDE <= graph.photo_shape[0]):
            known.add(node.name)
    return tuple(copied) if feature_node(graph) in [node.name for node in copied] else graph.nodes[1:]


def training_side(used: int) -> int:
    """Side of the photos that train a branch: random crops enlarge the leaf, photos in use do not."""
    return 7 * used // 9 if used % STEP else STEP * round(7 * used / 9 / STEP)


def choose_network(graph: Graph) -> tuple[Graph, slice, int]:
    """The network whose last layers the branch copies, its channels in the feature map, and of how many networks.

    Of networks side by side, whose last maps the feature map concatenates, the one with the fewest weights: branches of
    all are not correct more often (docs/adr/0037).
    """
    last, head = feature_node(graph), head_node(graph)
    joined = graph.node(last) if last else None
    maps = joined.inputs if joined and joined.op == "concat" else ()
    parts = [_ancestors(graph, name) for name in maps]
    if not parts or len(set[str]().union(*parts)) != sum(map(len, parts)):
        return graph, slice(None), 1
    sizes = [sum(p.size for node in graph.nodes if node.name in part for p in node.parameters) for part in parts]
    chosen = sizes.index(min(sizes))
    nodes = {node.name: node for node in graph.nodes if node.name in parts[chosen] or node.op == PHOTO}
    for node in graph.nodes[graph.nodes.index(joined) + 1 : graph.nodes.index(head) + 1]:
        inputs = tuple(maps[chosen] if name == last else name for name in node.inputs)
        nodes[node.name] = make_node(node.op, node.name, inputs, node.attributes, nodes)
    ends = np.cumsum([graph.node(name).shape[-1] for name in maps])
    start = int(ends[chosen]) - graph.node(maps[chosen]).shape[-1]
    return Graph(graph.name, tuple(nodes.values()), head.name), slice(start, int(ends[chosen])), len(maps)


def _ancestors(graph: Graph, name: str) -> set[str]:
    """Names of a node and of all that it follows from, except the photo."""
    found = {name}
    for node in reversed(graph.nodes[1:]):
        if node.name in found:
            found.update(node.inputs)
    return found - {PHOTO}


def keep_classes(graph: Graph, weights: Mapping[str, Array], classes: Array) -> tuple[Graph, dict[str, Array]]:
    """The network of the branch with these classes alone, so that it learns what separates them and nothing else."""
    graph, channels, networks = choose_network(graph)
    head = head_node(graph)
    before = graph.nodes[: graph.nodes.index(head)]
    fewer = make_node(head.op, head.name, head.inputs, {**head.attributes, "units": len(classes)},
                      {node.name: node for node in before})  # fmt: skip
    rows = {f"{head.name}.{p.role}": weights[f"{head.name}.{p.role}"][classes] for p in head.parameters}
    # the head averages logits of the networks: its weights are a share of each network's own
    rows[f"{head.name}.weight"] = networks * rows[f"{head.name}.weight"][..., channels]
    kept = Graph(graph.name, (*before, fewer), head.name)
    return kept, {name: rows.get(name, weights[name]) for name in kept.parameters()}


def train_branch(
    graph: Graph, weights: Mapping[str, Array], photos: Array, labels: Array, schedule: Schedule, seed: int,
    device: str, threads: int, report: ReportProgress = ignore, teachers: Sequence[Mapping[str, Array]] = (),
) -> dict[str, Array]:  # fmt: skip
    """Train the branch on photos uint8 ``(N, side, side, 3)``, evenly from all classes. Returns all weights.

    teachers: weights of networks whose logits, averaged, are the targets in place of the labels.
    """
    size, side, source = schedule.batch, schedule.side or training_side(graph.photo_shape[0]), photos.shape[1]
    smaller, trainable = with_photo_side(graph, side), {node.name for node in branch_nodes(graph)}
    frozen = [name for name in graph.parameters() if name.rpartition(".")[0] not in trainable]
    views = schedule.views or schedule.steps
    order = draw_order(labels, views * size, seed).reshape(views, size)
    targets: dict[int, Array] = {}
    with ExitStack() as opened:

        def load(compiled: Graph, values: Mapping[str, Array], **asked: Any) -> Plan:
            plan = compile_plan(compiled, device=device, batch=size, threads=threads, **asked)
            opened.enter_context(closing(plan)).load(values)
            return plan

        plan = load(with_loss(smaller, schedule.smoothing, (), targets=bool(teachers)), weights, training=True,
                    frozen=frozen, seed=seed, optimizer=schedule.optimizer)  # fmt: skip
        teaching = [load(smaller, teacher) for teacher in teachers]
        for step in range(schedule.steps):
            view = step % views
            rows = order[view]
            augmentation = draw_augmentation(schedule.augmentation, seed, view, rows, source, side, np.arange(size))
            batch = PhotoBatch(photos[rows], augmentation, labels[rows].astype(np.int32))
            if teaching and view not in targets:
                mean = np.mean([teacher.predict(batch)["logits"] for teacher in teaching], axis=0)
                targets[view] = softmax(mean).astype(np.float32)
            batch = replace(batch, targets=targets.get(view))
            plan.train_step(batch, schedule.rate * one_cycle(step, schedule.warm_up, schedule.steps))
            report(step + 1, schedule.steps)
        return plan.weights()


def draw_order(labels: Array, count: int, seed: int) -> Array:
    """Indices ``(count,)`` of photos. Classes alternate, and each repeats a photo only after all its others."""
    rng = np.random.default_rng(seed)
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    per_class = -(-count // len(classes))
    columns = [np.concatenate([rng.permutation(rows) for _ in range(-(-per_class // len(rows)))])[:per_class]
               for rows in classes]  # fmt: skip
    return np.stack(columns, axis=1).ravel()[:count]


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """The factor ``clip(features @ weight + bias, 0, 1)`` of a branch; weight ``(F,)``."""

    weight: Array
    bias: float

    def open(self, features: Array) -> Array:
        return np.asarray(np.clip(features @ self.weight + self.bias, 0, 1))

    def lift(self, basis: Array, center: Array) -> Gate:
        """The gate for features ``(N, F)`` that is this one for ``(features - center) @ basis``."""
        weight = basis @ self.weight
        return Gate(weight, self.bias - float(weight @ center))


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A trained branch.

    weights: by the names of the network's parameters, the head's for `classes` alone, the indices of the classes that
    the branch separates; level: added to their logits where the gate is open.
    """

    weights: Mapping[str, Array]
    gate: Gate
    classes: Array
    level: float


def fit_gate(photos: Array, others: Array) -> Gate:
    """Fit a gate that is open for features ``(N, F)`` of the place, and closed for those of other photos ``(M, F)``."""
    start = LinearHead(np.zeros((2, photos.shape[1])), np.zeros(2))
    negative, positive = (Samples(x, np.full(len(x), i), np.arange(len(x))) for i, x in enumerate((others, photos)))
    fitted = fit_head(start, positive, negative, GATE_PENALTY)
    weight, bias = fitted.weight[1] - fitted.weight[0], fitted.bias[1] - fitted.bias[0]
    return Gate(weight / GATE_WIDTH, float(bias) / GATE_WIDTH)


def join_branch(graph: Graph, weights: Mapping[str, Array], branch: Branch) -> tuple[Graph, dict[str, Array]]:
    """Add a branch. Where its gate is open, the logits of its classes are the mean of the head's for them, plus the
    branch's minus their mean, plus the level. The network's head stays the last layer with weights."""
    position, network = graph.nodes.index(head_node(graph)), choose_network(graph)[0]
    head, copied, last = head_node(network), branch_nodes(network), feature_node(graph)
    nodes, joined = {node.name: node for node in graph.nodes[:position]}, dict(weights)
    renamed = {node.name: PREFIX + node.name for node in copied}

    def add(op: str, name: str, *inputs: str, **attributes: Attribute) -> str:
        nodes[PREFIX + name] = make_node(op, PREFIX + name, inputs, attributes, nodes)
        return PREFIX + name

    def dense(name: str, source: str, weight: Array, bias: Array) -> str:
        joined[f"{PREFIX}{name}.weight"] = weight.astype(np.float32)
        joined[f"{PREFIX}{name}.bias"] = bias.astype(np.float32)
        return add("dense", name, source, units=len(weight), bias=True)

    gate = branch.gate  # scaled by 6 for relu6; the layers that read it divide by 6
    gated = add("relu6", "open", dense("gate", head.inputs[0], 6 * gate.weight[None], np.array([6 * gate.bias])))
    for node in copied[: copied.index(head)]:
        add(node.op, node.name, *(renamed.get(name, name) for name in node.inputs), **node.attributes)
        joined |= {f"{PREFIX}{node.name}.{p.role}": branch.weights[f"{node.name}.{p.role}"] for p in node.parameters}
        if last and node.name == feature_node(network):
            maps = add("concat", "maps", renamed[node.name], last)
            channels = nodes[maps].shape[-1]
            opening = dense("factor", gated, np.full((channels, 1), 1 / 6), np.zeros(channels))
            renamed[node.name] = add("multiply", "gated", maps, opening)
    count = head.shape[-1]
    own, before = ([of[f"{head.name}.{role}"] for role in ("weight", "bias")] for of in (branch.weights, weights))
    weight, bias = (_differences(array, branch.classes, count) for array in own)
    weight_before, bias_before = (_differences(array[branch.classes], branch.classes, count) for array in before)
    bias[branch.classes] += branch.level
    every = dense("logits", renamed[head.inputs[0]], np.c_[weight, -weight_before], np.zeros(count))
    logits = add("add", "moved", every, dense("bias", gated, (bias - bias_before)[:, None] / 6, np.zeros(count)))
    nodes |= {node.name: node for node in graph.nodes[position:]}
    output = add("add", "sum", graph.output, logits)
    return Graph(graph.name, tuple(nodes.values()), output), joined


def _differences(array: Array, classes: Array, count: int) -> Array:
    """The rows of these classes minus their mean, among `count` rows; zeros for the others."""
    rows = np.zeros((count, *array.shape[1:]), array.dtype)
    rows[classes] = array - array.mean(axis=0)
    return rows


def is_branched(graph: Graph) -> bool:
    return graph.output.startswith(PREFIX)
