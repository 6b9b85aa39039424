"""Trains the leaf detector (`core.diagnosis.leaf_detector`) with the project's engine.

Losses of CenterNet (Zhou et al., "Objects as points", 2019): a focal loss on the heatmap, L1 on sizes and offsets. They
are computed here from the outputs. Their gradient enters the plan by way of its loss, a softmax cross entropy with
targets t: the gradient of its logits is ``p sum(t) - t``, so targets that sum to zero are a gradient with its sign
changed. A spare channel with frozen zero weights takes what is missing to that sum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.device import PhotoBatch
from core.diagnosis.leaf_detector import CHANNELS, MAPS
from core.graph import PHOTO, Graph, Node
from core.ops.builder import make_node, with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.optim.optimizer import Optimizer
from core.plan import compile_plan
from core.program import name_parameters

SPARE: Final = "spare"
SPARES: Final = 4
"""Channels of it, before the maps: on the GPU parts of a concatenation start at multiples of 4 channels."""
WIDTH: Final = 8
"""Channels of the maps while they are trained, of which those after `CHANNELS` get no gradient: a flattened map on the
GPU needs a multiple of 4."""
START: Final = (-2.9, -1.2, -1.2, 0.0, 0.0)
"""Biases of the outputs at the start: few leaves, of a third of the photo's side."""
SIGMA: Final = (0.6, 0.1)
"""Standard deviation of a centre's Gaussian, cells: at least, and per cell of the leaf's side."""
NEAR: Final = 0.5
"""Value of the Gaussian from which a cell learns size and offset."""
WEIGHTS: Final = (1.0, 1.0, 0.5)
"""Of the losses of heatmap, size and offset."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Photos uint8 ``(N, side, side, 3)``, and of each what `make_targets` gives."""

    photos: Array
    targets: Array
    weights: Array


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A square photo uint8 ``(side, side, 3)``; boxes y0, x0, y1, x1 as shares; ignored: boxes that are neither leaf
    nor background; empty: weight of cells without a box, below 1 where not all leaves are marked."""

    photo: Array
    boxes: Array
    ignored: Array
    empty: float = 1.0


def detector_graph(base: Graph, side: int, last: str, hidden: int, channels: int = len(CHANNELS)) -> Graph:
    """The layers of `base` up to `last` for photos of `side`, two convolutions, the maps, and their average."""
    photo = base.nodes[0]
    known: dict[str, Node] = {PHOTO: Node(PHOTO, "photo", (), (side, side, 3), photo.attributes)}

    def add(op: str, name: str, *inputs: str, **attributes: object) -> str:
        known[name] = make_node(op, name, inputs, attributes, known)  # type: ignore[arg-type]
        return name

    for node in base.nodes[1:]:
        known[node.name] = make_node(node.op, node.name, node.inputs, node.attributes, known)
        if node.name == last:
            break
    x = last
    for number in (1, 2):
        x = add("conv2d", f"head.{number}", x, filters=hidden, kernel=(3, 3), padding=(1, 1, 1, 1))
        x = add("relu", f"head.{number}.relu", x)
    x = add("conv2d", MAPS, x, filters=channels, init="normal_0.01")
    output = add("global_avg_pool", "mean", x)
    return Graph("leaf_detector", tuple(known.values()), output)


def make_batch(examples: Sequence[Example], cells: int) -> Batch:
    made = [make_targets(example, cells) for example in examples]
    return Batch(np.stack([example.photo for example in examples]), np.stack([targets for targets, _ in made]),
                 np.stack([weights for _, weights in made]))  # fmt: skip


def training_graph(graph: Graph) -> Graph:
    """A network of `WIDTH` maps with these and the spare channels as logits of the loss."""
    known = {node.name: node for node in graph.nodes[:-1]}
    inside = known[MAPS].inputs[0]
    known[SPARE] = make_node("conv2d", SPARE, (inside,), {"filters": SPARES}, known)
    known["all"] = make_node("concat", "all", (SPARE, MAPS), {}, known)
    known["flat"] = make_node("flatten", "flat", ("all",), {}, known)
    return with_loss(Graph(graph.name, tuple(known.values()), "flat"), 0.0, (), targets=True)


def first_weights(graph: Graph, base: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Weights of `base` where it has them, He's elsewhere (normal), zeros for the spare channel."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, parameter in graph.parameters().items():
        if name in base:
            weights[name] = np.zeros(parameter.shape, np.float32)
            weights[name][: len(base[name])] = base[name]
        elif name.startswith(SPARE) or name.endswith("bias"):
            weights[name] = np.zeros(parameter.shape, np.float32)
        else:
            deviation = 0.01 if name.startswith(MAPS) else math.sqrt(2 / parameter.fan_in)
            weights[name] = rng.normal(0, deviation, parameter.shape).astype(np.float32)
    if MAPS + ".bias" not in base:
        weights[f"{MAPS}.bias"][: len(START)] = START
    return weights


def make_targets(example: Example, cells: int) -> tuple[Array, Array]:
    """Targets ``(cells, cells, 5)``, and weights ``(cells, cells, 2)`` of the heatmap and of size and offset."""
    targets = np.zeros((cells, cells, 5), np.float32)
    weights = np.zeros((cells, cells, 2), np.float32)
    weights[..., 0] = example.empty
    at = np.arange(cells) + 0.5
    for y0, x0, y1, x1 in example.ignored * cells:
        weights[max(int(y0), 0) : math.ceil(y1), max(int(x0), 0) : math.ceil(x1), 0] = 0
    for y0, x0, y1, x1 in example.boxes * cells:
        middle, size = np.array(((y0 + y1) / 2, (x0 + x1) / 2)), np.array((y1 - y0, x1 - x0))
        sigma = np.maximum(SIGMA[0], SIGMA[1] * size)
        cell = np.clip(middle.astype(int), 0, cells - 1)
        shift = np.stack(np.meshgrid(middle[0] - at, middle[1] - at, indexing="ij"), axis=-1)
        away = np.stack(np.meshgrid(cell[0] + 0.5 - at, cell[1] + 0.5 - at, indexing="ij"), axis=-1)
        value = np.exp(-((away / sigma) ** 2).sum(axis=-1) / 2)
        mine = (value >= NEAR) & (value > targets[..., 0])
        targets[mine, 1:3] = np.log(np.maximum(size / cells, 0.01))
        targets[mine, 3:5] = shift[mine]
        weights[mine, 1] = value[mine]
        weights[..., 0] = np.where(value > 0.1, 1.0, weights[..., 0])
        targets[..., 0] = np.maximum(targets[..., 0], value)
    return targets, weights


def loss_gradient(maps: Array, targets: Array, weights: Array) -> tuple[float, Array]:
    """The loss of a batch, and its gradient with respect to maps ``(N, cells, cells, 5)``."""
    x, y = maps[..., 0].astype(np.float64), targets[..., 0]
    p = np.clip(1 / (1 + np.exp(-x)), 1e-6, 1 - 1e-6)
    centre = y == 1
    count = max(int(centre.sum()), 1)
    far = weights[..., 0] * (1 - y) ** 4
    loss = np.where(centre, -((1 - p) ** 2) * np.log(p), -far * p**2 * np.log(1 - p)).sum()
    gradient = np.zeros(maps.shape)
    gradient[..., 0] = np.where(centre, -((1 - p) ** 2) * (1 - p - 2 * p * np.log(p)),
                                far * p**2 * (p - 2 * (1 - p) * np.log(1 - p)))  # fmt: skip
    total = max(float(weights[..., 1].sum()), 1.0)
    for part, weight in ((slice(1, 3), WEIGHTS[1]), (slice(3, 5), WEIGHTS[2])):
        share = weight * weights[..., 1:] * count / total
        apart = maps[..., part] - targets[..., part]
        loss += (share * np.abs(apart)).sum()
        gradient[..., part] = share * np.clip(apart / 0.05, -1, 1)  # L1, smooth near zero
    return float(loss / count), gradient / count


def narrow(weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of the network as it is used."""
    return {name: array[: len(CHANNELS)] if name.startswith(MAPS) else array
            for name, array in weights.items() if not name.startswith(SPARE)}  # fmt: skip


def train(
    graph: Graph, wide: Graph, weights: Mapping[str, Array], batches: Iterator[Batch], *, steps: int, seconds: float,
    batch: int, rate: float, device: str, threads: int, frozen: Sequence[str] = (),
) -> Iterator[tuple[int, float, dict[str, Array]]]:  # fmt: skip
    """Train for so many steps, or seconds where given (cosine schedule, AdamW, averaged weights); yields step, loss,
    and at times weights. graph: the network as it is used; wide: as it is trained (`training_graph`)."""
    side, cells = graph.photo_shape[0], graph.node(MAPS).shape[0]
    plan = compile_plan(wide, device=device, batch=batch, training=True, threads=threads,
                        optimizer=Optimizer("adamw", weight_decay=1e-4, clip_norm=5.0, average=0.998),
                        frozen=(f"{SPARE}.weight", f"{SPARE}.bias", *frozen))  # fmt: skip
    # training plans do not predict
    forward = compile_plan(graph, device=device, batch=batch, threads=threads, outputs=(MAPS,))
    plan.load(weights)
    augmentation, labels = identity_augmentation(batch, side, side), np.zeros(batch, np.int32)
    mean, begin, done = 0.0, time.monotonic(), 0.0
    step = 0
    while done < 1:
        step += 1
        made = next(batches)
        forward.load(narrow(plan.weights()))
        maps = forward.predict(PhotoBatch(made.photos, augmentation, np.full(batch, -1, np.int32)))[MAPS]
        loss, gradient = loss_gradient(maps, made.targets, made.weights)
        wanted = np.zeros((batch, cells, cells, SPARES + WIDTH), np.float32)
        wanted[..., SPARES : SPARES + len(CHANNELS)] = -batch * gradient  # the plan's loss is the mean over the batch
        wanted[:, 0, 0, 0] = -wanted.sum(axis=(1, 2, 3))
        if step == 2:
            begin = time.monotonic()  # kernels are compiled
        done = min((time.monotonic() - begin) / seconds if seconds and step > 1 else step / steps, 1.0)
        now = rate * min(20 * done, 1.0) * 0.5 * (1 + math.cos(math.pi * done))
        plan.train_step(PhotoBatch(made.photos, augmentation, labels, targets=wanted.reshape(batch, -1)), now)
        mean = loss if step == 1 else 0.98 * mean + 0.02 * loss
        if not mean < 100:
            raise SystemExit(f"The training diverged at step {step}.")
        if step % 50 == 0 or done == 1:
            kept = name_parameters(plan.state()["average"], plan.layout) if step % 500 == 0 or done == 1 else {}
            yield step, mean, narrow(kept)
    plan.close()
