"""The training plan of a run: batch size, loss and class weights, and on a GPU tuned kernels."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

import numpy as np

from core.communicator import SINGLE, Communicator
from core.config import RunConfig
from core.data.preparation import PhotoSet
from core.device import Plan
from core.errors import OutOfMemory
from core.graph import Graph
from core.ops.builder import with_loss
from core.ops.contract import Array
from core.optim.optimizer import optimizer_of
from core.plan import compile_plan, tune_training, untuned_note
from core.training.events import Progress
from core.training.transfer import frozen_parameters

AUTO_BATCH: Final = {"cpu": 32, "cuda": 256}
"""Largest automatic batch (`batch_size` 0). On the CPU larger batches gain nothing: photos are computed one by one."""

AUTO_STEPS: Final = 20
"""Fewest steps of an epoch with an automatic batch."""
TUNED_ALONE: Final = (
    "--tune is skipped: several processes cannot measure kernels at once. Tune before, with leafclinic lab tune."
)


def compile_for_training(
    config: RunConfig, graph: Graph, device: str, photos: PhotoSet, weights: Mapping[str, Array],
    communicator: Communicator,
) -> Generator[Progress, None, tuple[Plan, int, tuple[str, ...]]]:  # fmt: skip
    """Return (training plan, batch, note if no kernel was measured); with `config.tune`, tune the kernels first."""
    graph = add_loss(config, graph, class_weights(config, photos))
    if device == "cuda":
        yield Progress("compile", 0, 0)
    plan, batch = compile_fitting(config, graph, device, len(photos.training[1]), communicator)
    if device != "cuda" or not config.tune or communicator.size > 1:
        notes = (untuned_note(), TUNED_ALONE if config.tune else None) if device == "cuda" else ()
        return plan, batch, tuple(note for note in notes if note)
    images = plan.batch
    plan.close()
    for done, total in tune_training(graph, weights, images, config.precision):
        yield Progress("tune", done, total)
    return compile_training(config, graph, device, batch, communicator), batch, ()


def compile_fitting(
    config: RunConfig, graph: Graph, device: str, photos: int, communicator: Communicator = SINGLE
) -> tuple[Plan, int]:
    """The training plan of a graph with its loss, and its batch: as configured, at most all photos, or with 0 the
    largest that fits the device of every rank."""
    if config.batch_size:
        batch = min(config.batch_size, -(-photos // config.accumulate) * config.accumulate)
        return compile_training(config, graph, device, batch, communicator), batch
    least = auto_batch(device, photos, communicator.size)
    while True:
        batch = -(-least // config.accumulate) * config.accumulate  # as `problems` requires of a resumed run
        plan: Plan | None = None
        try:
            plan = compile_training(config, graph, device, batch, communicator)
        except OutOfMemory:
            if least == 1:
                raise
        everywhere = all(communicator.gather(b"" if plan is None else b"fits"))
        if plan is not None and everywhere:
            return plan, batch
        if plan is not None:
            plan.close()
        least //= 2


def auto_batch(device: str, photos: int, ranks: int = 1) -> int:
    """A power of two, 4 to `AUTO_BATCH` per rank, such that an epoch has at least `AUTO_STEPS` steps if possible."""
    batch = AUTO_BATCH[device] * ranks
    while batch > 4 and photos < AUTO_STEPS * batch:
        batch //= 2
    return batch


def compile_training(config: RunConfig, graph: Graph, device: str, batch: int, communicator: Communicator) -> Plan:
    """The training plan of a run, for one of the `accumulate` micro-batches of a rank's share of a step."""
    return compile_plan(
        graph, device=device, batch=part_size(config, batch, communicator.size), training=True,
        precision=config.precision, algorithm=config.algorithm, optimizer=optimizer_of(config),
        frozen=frozen_parameters(config, graph), seed=config.seed, threads=config.threads, verify=config.verify,
        communicator=communicator, sync_batch_norm=config.sync_batch_norm and communicator.size > 1,
    )  # fmt: skip


def add_loss(config: RunConfig, graph: Graph, weights_of_classes: tuple[float, ...]) -> Graph:
    soft_targets = bool(config.teacher) or config.mix > 0
    return with_loss(graph, config.label_smoothing, weights_of_classes, soft_targets, config.labels == "multi")


def part_size(config: RunConfig, batch: int, ranks: int) -> int:
    """Photos of a micro-batch; every rank computes `accumulate` micro-batches in a step."""
    return -(-batch // (config.accumulate * ranks))


def class_weights(config: RunConfig, photos: PhotoSet) -> tuple[float, ...]:
    """Weight of each class in the loss, with mean 1 over the training photos; empty without weights."""
    if config.class_weights == "none":
        return ()
    power = {"balanced": 1.0, "sqrt": 0.5}[config.class_weights]
    counts = np.bincount(photos.training[1], minlength=len(photos.classes)).astype(np.float64)
    weights = counts**-power
    weights *= counts.sum() / (counts * weights).sum()
    return tuple(float(w) for w in weights)
