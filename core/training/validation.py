"""Validates weights on photos that they were not trained on, with a plan for inference."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np
from safetensors.numpy import load, save

from core.communicator import Communicator
from core.data.loader import Loader
from core.device import Plan
from core.graph import Graph
from core.ops.contract import Array
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights, name_parameters
from core.training.commands import Commands
from core.training.events import Progress
from core.training.step import pair_with_next, split_batch

STATISTICS_BATCHES: Final = 30
"""Batches that recompute batch norm statistics; with a momentum of 0.1, 4 % of the old ones remain."""


class Validator:
    """Evaluates weights by one inference plan. Of several ranks, rank 0 calls `predict`, the others `assist`."""

    def __init__(self, graph: Graph, plan: Plan, communicator: Communicator) -> None:
        self._graph, self.plan, self._communicator = graph, plan, communicator

    def predict(
        self, stage: str, weights: Mapping[str, Array], loader: Loader, commands: Commands
    ) -> Generator[Progress, None, Array | None]:
        """Logits ``(N, classes)`` of the loader's photos in order; None if the run was stopped."""
        if self._communicator.size > 1:
            self._communicator.broadcast(stage.encode())
            self._communicator.broadcast_arrays(weights)
        return (yield from self._predict_share(stage, weights, loader, commands))

    def assist(self, loaders: Mapping[str, Loader | None]) -> None:
        """Compute this rank's share of every prediction until rank 0 has called `dismiss`. loaders: by stage."""
        while stage := self._communicator.broadcast(b"").decode():
            weights, loader = self._communicator.broadcast_arrays({}), loaders[stage]
            assert loader is not None
            for _ in self._predict_share(stage, weights, loader, Commands()):
                pass

    def dismiss(self) -> None:
        if self._communicator.size > 1:
            self._communicator.broadcast(b"")

    def _predict_share(
        self, stage: str, weights: Mapping[str, Array], loader: Loader, commands: Commands
    ) -> Generator[Progress, None, Array | None]:
        self.plan.load(fold_weights(self._graph, weights))
        logits, total = [], loader.steps
        with closing(loader.batches(0)) as batches:
            for batch, following in pair_with_next(batches):
                self.plan.announce(following)
                logits.append(self.plan.predict(batch)["logits"])
                if commands.stopped() and self._communicator.size == 1:
                    return None
                yield Progress(stage, min(len(logits) * self._communicator.size, total), total)
        return collect_batches(self._communicator, logits, total)


def collect_batches(communicator: Communicator, logits: Sequence[Array], total: int) -> Array:
    """Logits ``(N, classes)`` of all photos in order, where rank r has computed the batches r, r + size, ..."""
    if communicator.size == 1:
        return np.concatenate(logits)
    shares = communicator.gather(save({str(number): array for number, array in enumerate(logits)}))
    found = [load(share) for share in shares]
    return np.concatenate([found[step % len(found)][str(step // len(found))] for step in range(total)])


def compile_inference(graph: Graph, device: str, batch: int, threads: int = 0, outputs: Sequence[str] = ()) -> Plan:
    """A float32 plan for inference, batch norm folded; load it with ``fold_weights(graph, weights)``."""
    return compile_plan(fold_batch_norm(graph), device=device, batch=batch, threads=threads, outputs=outputs)


def evaluation_weights(plan: Plan, loader: Loader, epoch: int) -> dict[str, Array]:
    """The weights to evaluate and save: their running average if there is one, else the current weights.

    Batch norm statistics belong to the weights before averaging, so they are recomputed over batches of the training
    loader (Izmailov et al., "Averaging weights leads to wider optima", 2018, section 3.2). The plan is unchanged.
    """
    state, weights = plan.state(), plan.weights()
    flat = state.get("average")
    if flat is None:
        return weights
    averaged = weights | name_parameters(flat, plan.layout)
    if not plan.program.uses_batch_statistics():
        return averaged
    plan.load(averaged)
    target_size = plan.program.target_size
    with closing(loader.batches(epoch)) as batches:
        for batch in itertools.islice(batches, STATISTICS_BATCHES):
            for part in split_batch(replace(batch, step_labels=None), plan.batch):  # of this rank alone
                # statistics need no targets: the gradient is not used
                targets = np.zeros((len(part.labels), target_size), np.float32) if target_size else None
                plan.gradient(replace(part, targets=targets))
    renewed = plan.weights()
    plan.load(weights)
    plan.load_state(state)
    return renewed
