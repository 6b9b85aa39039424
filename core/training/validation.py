"""Validates weights on photos that they were not trained on, with a plan for inference."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np

from core.data.loader import Loader
from core.device import Plan
from core.diagnosis.metrics import Metrics, compute_metrics
from core.graph import Graph
from core.ops.contract import Array
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights
from core.training.commands import Commands
from core.training.events import Progress
from core.training.step import pair_with_next, split_batch

STATISTICS_BATCHES: Final = 30
"""Batches that recompute batch norm statistics; with a momentum of 0.1, 4 % of the old ones remain."""


@final
class Validator:
    """Evaluates weights with one inference plan of the network, with batch norm folded."""

    def __init__(self, graph: Graph, plan: Plan, classes: Sequence[str]) -> None:
        self._graph, self.plan, self._classes = graph, plan, tuple(classes)

    def evaluate(
        self, stage: str, weights: Mapping[str, Array], loader: Loader, commands: Commands
    ) -> Generator[Progress, None, Metrics | None]:
        """Metrics on the loader's photos; None if the run was stopped."""
        logits = yield from self.predict(stage, weights, loader, commands)
        return None if logits is None else compute_metrics(logits, loader.labels, self._classes)

    def predict(
        self, stage: str, weights: Mapping[str, Array], loader: Loader, commands: Commands
    ) -> Generator[Progress, None, Array | None]:
        """Logits ``(N, classes)`` of the loader's photos in order; None if the run was stopped."""
        self.plan.load(fold_weights(self._graph, weights))
        logits, total = [], loader.steps
        batches = loader.batches(0)
        try:
            for done, (batch, following) in enumerate(pair_with_next(batches), 1):
                self.plan.announce(following)
                logits.append(self.plan.predict(batch)["logits"])
                if commands.stopped():
                    return None
                yield Progress(stage, done, total)
        finally:
            batches.close()  # type: ignore[attr-defined]  # ends the loader's thread
        return np.concatenate(logits)


def compile_inference(
    graph: Graph, device: str, batch: int, threads: int = 0, algorithm: str = "auto", outputs: Sequence[str] = ()
) -> Plan:
    """A plan for inference in float32, with batch norm folded into the convolutions.

    Load it with ``fold_weights(graph, weights)``.
    """
    return compile_plan(
        fold_batch_norm(graph), device=device, batch=batch, threads=threads, algorithm=algorithm, outputs=outputs
    )


def evaluation_weights(plan: Plan, loader: Loader, epoch: int) -> dict[str, Array]:
    """The weights to evaluate and save: their running average if there is one, else the current weights.

    Batch norm statistics belong to the weights before averaging, so they are recomputed over batches of the training
    loader (Izmailov et al., "Averaging weights leads to wider optima", 2018, section 3.2). The plan
    is unchanged afterwards.
    """
    state, weights = plan.state(), plan.weights()
    flat = state.get("average")
    if flat is None:
        return weights
    averaged = dict(weights)
    for name, (first, shape) in plan.layout.offsets.items():
        if first < plan.layout.trained:
            averaged[name] = flat[first : first + weights[name].size].reshape(shape).copy()
    if not plan.program.uses_batch_statistics():
        return averaged
    plan.load(averaged)
    batches, taught = loader.batches(epoch), plan.program.taught
    for batch in itertools.islice(batches, STATISTICS_BATCHES):
        for part in split_batch(batch, plan.batch):  # statistics need no targets: the gradient is not used
            plan.gradient(replace(part, targets=np.zeros((len(part.labels), taught), np.float32)) if taught else part)
    batches.close()  # type: ignore[attr-defined]  # ends the loader's thread
    renewed = plan.weights()
    plan.load(weights)
    plan.load_state(state)
    return renewed
