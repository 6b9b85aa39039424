"""Judging weights on photos that they did not learn from, with a plan made for inference."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import final

import numpy as np

from core.data.loader import Loader
from core.device import Plan
from core.diagnosis.figures import Figures, judge
from core.graph import Graph
from core.ops.contract import Array
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights
from core.training.commands import Commands
from core.training.events import Progress


@final
class Validator:
    """An inference plan of the network, batch norm folded, that weights are loaded into again and again."""

    def __init__(self, graph: Graph, plan: Plan, classes: Sequence[str]) -> None:
        self._graph, self.plan, self._classes = graph, plan, tuple(classes)

    def judge(
        self, stage: str, weights: Mapping[str, Array], loader: Loader, commands: Commands
    ) -> Generator[Progress, None, Figures | None]:
        """Figures on the loader's photos; None if the run was stopped meanwhile."""
        self.plan.load(fold_weights(self._graph, weights))
        logits, total = [], loader.steps
        batches = loader.batches(0)
        try:
            for done, batch in enumerate(batches, 1):
                logits.append(self.plan.predict(batch)["logits"])
                if commands.stopped():
                    return None
                yield Progress(stage, done, total)
        finally:
            batches.close()  # type: ignore[attr-defined]  # ends the loader's thread
        return judge(np.concatenate(logits), loader.labels, self._classes)


def compile_inference(graph: Graph, device: str, batch: int, threads: int = 0, algorithm: str = "auto") -> Plan:
    """A plan for inference in float32, with batch norm folded into the convolutions.

    Load it with ``fold_weights(graph, weights)``.
    """
    return compile_plan(fold_batch_norm(graph), device=device, batch=batch, threads=threads, algorithm=algorithm)


def average_weights(plan: Plan) -> dict[str, Array]:
    """The weights to judge and to keep: their running average where one is kept, else as they are."""
    weights = plan.weights()
    flat = plan.state().get("average")
    if flat is not None:
        for name, (first, shape) in plan.layout.offsets.items():
            if first < plan.layout.trained:
                weights[name] = flat[first : first + weights[name].size].reshape(shape).copy()
    return weights
