"""Gaussian replay: features like those of the training photos, drawn from stored means and a covariance.

A model file has no photos to replay when the model is adapted. The features of a class are drawn from a normal
distribution in the principal subspace (`core.diagnosis.features`), with a mean for each class and one covariance. On
validation photos this preserves accuracy as well as stored features do (benchmarks/results/adaptation.json).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from core.diagnosis.features import PrincipalSubspace
from core.diagnosis.spreads import mean_of_classes
from core.ops.contract import Array

REPLAY: Final = "replay."
"""Prefix of the arrays' names in a model file."""
JITTER: Final = 1e-6
"""Share of the largest covariance that is added to all variances: a singular matrix has no Cholesky factor."""


@dataclass(frozen=True, slots=True, eq=False)
class FeatureReplay:
    """center ``(F,)``, basis ``(F, D)``: of the subspace; means ``(classes, D)``: in the subspace; factor ``(D, D)``:
    Cholesky factor of the covariance within classes."""

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
    """Fit the replay to pooled features ``(N, F)``. Returns arrays for a model file; none if a class has no photo."""
    if len(np.unique(labels)) < classes:
        return {}
    x = (np.asarray(features, np.float64) - subspace.center) @ subspace.basis
    means, index = mean_of_classes(x, labels)
    deviations = x - means[index]
    covariance = deviations.T @ deviations / len(x)
    factor = np.linalg.cholesky(covariance + JITTER * (1 + covariance.max()) * np.eye(x.shape[1]))
    return {REPLAY + "means": means.astype(np.float32), REPLAY + "factor": factor.astype(np.float32)}


def read_replay(arrays: Mapping[str, Array], subspace: PrincipalSubspace | None, classes: int) -> FeatureReplay | None:
    """The replay in a model file's arrays; None if it is missing or does not match the classes or the subspace.

    The subspace of an adapted model has more dimensions than its replay, which uses the first ones.
    """
    means, factor = arrays.get(REPLAY + "means"), arrays.get(REPLAY + "factor")
    if means is None or factor is None or subspace is None or means.ndim != 2:
        return None
    dimensions = means.shape[1]
    if len(means) != classes or factor.shape != (dimensions, dimensions) or subspace.basis.shape[1] < dimensions:
        return None
    basis = subspace.basis[:, :dimensions].astype(np.float64)
    return FeatureReplay(subspace.center.astype(np.float64), basis, means.astype(np.float64), factor.astype(np.float64))
