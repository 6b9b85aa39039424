"""One optimizer step, in parts where gradients are accumulated, and the error where it diverges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np

from core.communicator import Communicator
from core.device import Optimizer, PhotoBatch, Plan, StepResult
from core.errors import TrainingDiverged
from core.graph import Graph
from core.ops.attributes import read_numbers
from core.ops.contract import Array
from core.ops.photo import BACKGROUND
from core.plan import compile_plan


def start_step(
    plan: Plan, batch: PhotoBatch, learning_rate: float, following: PhotoBatch | None = None
) -> Callable[[], StepResult]:
    """Start to compute the gradient of a batch and update the weights if it is finite; returns a function that waits.

    A batch larger than the plan's is taken in parts, which that function computes: they give loss and gradient of the
    whole batch, also with class weights. With several ranks, `batch` is the share of this rank, and the result is that
    of all. `following`: the next step's batch, which may be prefetched.
    """
    parts = split_batch(batch, plan.batch)
    if len(parts) < batch.parts:  # the others are empty, and their share is 0
        parts += [replace(cut_batch(batch, 0, 1), labels=np.array([-1], np.int32))] * (batch.parts - len(parts))
    upcoming = [*parts[1:], None if following is None else cut_batch(following, 0, plan.batch)]
    labels = batch.labels if batch.step_labels is None else batch.step_labels
    shares = shares_of_parts(plan, labels, len(parts))[batch.first // plan.batch :]
    if len(parts) > 1:
        return partial(_take_parts, plan, list(zip(parts, upcoming, shares, strict=False)), learning_rate, len(labels))
    plan.announce(upcoming[0])
    wait = plan.start_step(batch, learning_rate, shares[0])
    return lambda: replace(wait(), photos=len(labels))


def _take_parts(
    plan: Plan, parts: Sequence[tuple[PhotoBatch, PhotoBatch | None, float]], learning_rate: float, photos: int
) -> StepResult:
    """One step from parts, each with the one after it and its share."""
    loss, correct, norm = 0.0, 0, 0.0
    for number, (part, after, share) in enumerate(parts):
        plan.announce(after)
        result = plan.gradient(part, accumulate=number > 0, share=share)
        loss += result.loss / len(parts)
        correct += result.correct
        norm = result.gradient_norm
    done = StepResult(loss, correct, photos, norm)
    if plan.ranks > 1:
        done = plan.average(done)
    if done.is_finite:
        plan.update(learning_rate)
    return done


def shares_of_parts(plan: Plan, labels: Array, parts: int) -> list[float]:
    """The share of every part of a step with these labels; each rank has `parts` parts, the last may be empty."""
    if parts * plan.ranks == 1:
        return [1.0]
    loss = plan.program.steps[-1].attributes
    weights = read_numbers(loss, "class_weights") if "class_weights" in loss else ()  # all are equal
    firsts = range(0, plan.ranks * parts * plan.batch, plan.batch)
    return share_out(weights, [labels[first : first + plan.batch] for first in firsts])


def share_out(weights: Sequence[float], labels: Sequence[Array]) -> list[float]:
    """Weight of the mean of each part, relative to equal shares, from the class weights of its labels (-1: none)."""
    table = np.asarray(weights, np.float64)
    known = [part[part >= 0] for part in labels]
    sums = [float(table[part].sum()) if len(table) else float(len(part)) for part in known]
    total = sum(sums)
    return [len(sums) * s / total if total else 1.0 for s in sums]


def pair_with_next(batches: Iterable[PhotoBatch]) -> Iterator[tuple[PhotoBatch, PhotoBatch | None]]:
    """Each batch with the one after it, None after the last."""
    pairs = itertools.pairwise(itertools.chain(batches, (None,)))
    return cast("Iterator[tuple[PhotoBatch, PhotoBatch | None]]", pairs)


def split_batch(batch: PhotoBatch, size: int) -> list[PhotoBatch]:
    """The batch in parts of at most `size` photos."""
    return [cut_batch(batch, first, first + size) for first in range(0, len(batch.labels), size)]


def cut_batch(batch: PhotoBatch, first: int, end: int) -> PhotoBatch:
    """Photos `first` to `end` (excluded) of a batch."""
    if first == 0 and end >= len(batch.labels):
        return batch
    part = slice(first, end)
    return replace(
        batch, photos=None if batch.photos is None else batch.photos[part], augmentation=batch.augmentation[part],
        labels=batch.labels[part], index=None if batch.index is None else batch.index[part],
        targets=None if batch.targets is None else batch.targets[part], first=batch.first + first,
    )


def with_photos(batch: PhotoBatch, photos: Array) -> PhotoBatch:
    """The batch with its photos in place of their indices; references to mixed photos are renumbered."""
    if batch.photos is not None or batch.index is None:
        return batch
    augmentation, index = batch.augmentation.copy(), np.asarray(batch.index)
    for row in np.flatnonzero(augmentation[:, BACKGROUND] < 0):
        augmentation[row, BACKGROUND] = -1 - int(np.flatnonzero(index == -1 - augmentation[row, BACKGROUND])[0])
    return replace(batch, photos=np.take(photos, index, axis=0), augmentation=augmentation, index=None)


def diverged(step: int, loss: float, layer: str, checkpoint: str) -> TrainingDiverged:
    what = f"The loss is {loss}" if not math.isfinite(loss) else "The gradient is not finite"
    kept = f"The last checkpoint {checkpoint} is kept. " if checkpoint else ""
    return TrainingDiverged(
        f"{what} at step {step}. The first values that are not finite come from the layer {layer!r}. {kept}Try a lower "
        "--learning-rate, a longer --warmup or --clip-norm 1."
    )


def find_broken_layer(
    plan: Plan, graph: Graph, batch: PhotoBatch, device: str, photos: Array, ranks: Communicator
) -> str:
    """The first layer whose output on the share of any rank is not finite, else the one whose gradient is not.

    The forward pass is computed again by a plan that returns every layer's output; photos: what `index` refers to.
    """
    names = [node.name for node in graph.nodes[1:]]
    probe = compile_plan(graph, device=device, batch=plan.batch, outputs=names, optimizer=Optimizer())
    try:
        probe.load(plan.weights())
        broken = {name for part in split_batch(replace(batch, targets=None), plan.batch)  # it has no loss
                  for name, values in probe.predict(with_photos(part, photos)).items() if not np.isfinite(values).all()}
    finally:
        probe.close()
    reached = [name.rpartition(".")[0] for name, array in plan.gradients().items()
               if not np.abs(array).max() < 1e15]  # NaN, or too large for a norm in float32
    own = next((name for name in names if name in broken), (reached or ["loss"])[-1])
    return min(map(str, ranks.gather_values(own)), key=[*names, "loss"].index)
