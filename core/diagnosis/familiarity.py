"""How familiar a photo is: a score of a network's outputs that is high for photos like those of the training.

Networks with a feature map use ViM (Wang et al., "ViM: out-of-distribution with virtual-logit matching", 2022): the
energy of the logits (Liu et al., 2020) less the scaled distance of the pooled features from the principal subspace of
the training features. Where a network has bottlenecks, the score of their spreads is added (`core.diagnosis.spreads`).
Other networks use the energy alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from core.diagnosis.features import FeatureNodes, NetworkOutputs, PrincipalSubspace, fit_subspace, read_statistics
from core.diagnosis.model_file import ModelFile
from core.diagnosis.spreads import SpreadStatistics, fit_spreads, read_spreads
from core.diagnosis.thresholds import UNFAMILIAR_REJECTED
from core.ops.contract import Array

WEIGHT: Final = 0.5
"""Weight of the score of spreads relative to ViM's. Each is divided by the distance from its median to its quantile
`UNFAMILIAR_REJECTED` on validation leaves."""


@dataclass(frozen=True, slots=True, eq=False)
class Familiarity:
    """A score, one of `core.diagnosis.thresholds.SCORES`, with the statistics that it needs."""

    score: str = "energy"
    temperature: float = 1.0
    subspace: PrincipalSubspace | None = None
    spreads: SpreadStatistics | None = None

    def needed(self, nodes: FeatureNodes) -> tuple[str, ...]:
        """Names of the nodes whose maps the score is computed from."""
        return {"energy": (), "vim": nodes.names[:1]}.get(self.score, nodes.names)

    def measure(self, seen: NetworkOutputs, cut: bool = False) -> Array:
        """Float64 ``(N,)``; higher is more familiar. cut: the photos are leaves cut from photos of several. Spreads
        show what is around such a leaf, so they count as they do at the threshold."""
        found = energy(np.asarray(seen.logits, np.float64) / self.temperature)
        if self.score != "energy":
            assert seen.features is not None  # a model file with this score has a feature map and statistics
            assert self.subspace is not None
            found = found - self.subspace.scale * self.subspace.residual(seen.features)
        if self.score == "vim_spreads":
            assert seen.spreads is not None
            assert self.spreads is not None
            _, weight, at_threshold = self.spreads.factors
            found = found + (at_threshold if cut else weight * self.spreads.score(seen.spreads))
        return found

    def to_arrays(self) -> dict[str, Array]:
        return {name: array for one in (self.subspace, self.spreads) if one for name, array in one.to_arrays().items()}


def energy(logits: Array) -> Array:
    """Log of the sum of exponentials, float64 ``(N,)``."""
    return np.asarray(np.logaddexp.reduce(np.asarray(logits, np.float64), axis=1))


def read_familiarity(model: ModelFile) -> Familiarity:
    """That of a model file; the energy if it has no thresholds."""
    score = model.thresholds.score if model.thresholds else "energy"
    return Familiarity(score, model.temperature, read_statistics(model.extra), read_spreads(model.extra))


def fit_familiarity(known: NetworkOutputs, labels: Array, seen: NetworkOutputs, temperature: float) -> Familiarity:
    """Fit to outputs and labels ``(N,)`` of training leaves; seen: outputs of validation leaves, for the weight."""
    if known.features is None:
        return Familiarity("energy", temperature)
    vim = Familiarity("vim", temperature, fit_subspace(known.logits / temperature, known.features))
    if known.spreads is None or seen.spreads is None or not len(seen.logits):
        return vim
    spreads = fit_spreads(known.spreads, labels)
    scores = vim.measure(seen), spreads.score(seen.spreads)
    own, other = (float(np.median(x) - np.quantile(x, UNFAMILIAR_REJECTED)) for x in scores)
    weight = WEIGHT * own / other if other > 0 else 0.0
    of_both, of_vim = (np.quantile(x, UNFAMILIAR_REJECTED) for x in (scores[0] + weight * scores[1], scores[0]))
    factors = np.array([spreads.factors[0], weight, of_both - of_vim])
    return replace(vim, score="vim_spreads", spreads=replace(spreads, factors=factors))
