"""Gaussian replay: features like those of the training photos, drawn from stored means and a covariance.

A model that learns more must not forget what it knows, and a model file has no photos. Its features within a class are
drawn from a normal distribution in the principal subspace (`core.diagnosis.features`): a mean for each class, one
covariance for all. On validation photos this keeps as much as stored features do (benchmarks/results/adaptation.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.diagnosis.features import PrincipalSubspace
from core.ops.contract import Array

REPLAY: Final = "replay."
"""Of the arrays' names in a model file."""
SMALLEST: Final = 1e-6
"""Of the largest variance, added to all: where features do not vary, there would be no Cholesky factor."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class FeatureReplay:
    """center ``(F,)`` and basis ``(F, D)`` of the subspace; means ``(classes, D)`` in it; factor ``(D, D)``: Cholesky
    factor of the covariance within classes."""

    center: Array
    basis: Array
    means: Array
    factor: Array

    def draw(self, per_class: int, seed: int) -> tuple[Array, Array]:
        """Features, float64 ``(classes * per_class, F)``, and their class indices."""
        labels = np.repeat(np.arange(len(self.means)), per_class)
        noise = np.random.default_rng(seed).standard_normal((len(labels), self.means.shape[1]))
        return self.center + (self.means[labels] + noise @ self.factor.T) @ self.basis.T, labels


def fit_replay(features: Array, labels: Array, classes: int, subspace: PrincipalSubspace) -> dict[str, Array]:
    """The arrays for a model file, of pooled features ``(N, F)``; empty if a class has no photo."""
    counts = np.bincount(labels, minlength=classes)
    if not counts.all():
        return {}
    x = (np.asarray(features, np.float64) - subspace.center) @ subspace.basis
    means = np.stack([x[labels == index].mean(axis=0) for index in range(classes)])
    spread = x - means[labels]
    covariance = spread.T @ spread / len(x)
    factor = np.linalg.cholesky(covariance + SMALLEST * (1 + covariance.max()) * np.eye(x.shape[1]))
    return {REPLAY + "means": means.astype(np.float32), REPLAY + "factor": factor.astype(np.float32)}


def read_replay(arrays: Mapping[str, Array], subspace: object, classes: int) -> FeatureReplay | None:
    """The replay in a model file's arrays; None if it has none, or one that does not fit the classes or subspace.

    An adapted model's subspace has more dimensions than its replay, which uses the first.
    """
    means, factor = arrays.get(REPLAY + "means"), arrays.get(REPLAY + "factor")
    if means is None or factor is None or not isinstance(subspace, PrincipalSubspace) or means.ndim != 2:
        return None
    dimensions = means.shape[1]
    if len(means) != classes or factor.shape != (dimensions, dimensions) or subspace.basis.shape[1] < dimensions:
        return None
    basis = subspace.basis[:, :dimensions].astype(np.float64)
    return FeatureReplay(subspace.center.astype(np.float64), basis, means.astype(np.float64), factor.astype(np.float64))
