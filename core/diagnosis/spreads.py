"""How near a photo is to the classes by the spreads of its maps: the relative Mahalanobis distance.

A spread is the standard deviation of a channel over the photo. Sources: Lee et al., "A simple unified framework for
detecting out-of-distribution samples", 2018; Ren et al., "A simple fix to Mahalanobis distance", 2021. Pooled features
are made to separate the known classes; spreads of earlier maps also show how a leaf of another crop looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from core.diagnosis.features import PER_DIMENSION
from core.diagnosis.stored_weights import from_tensors, round_to_eight_bits, to_tensors
from core.ops.contract import Array

SPREADS: Final = "spreads."
"""Prefix of the statistics' names in a model file."""
DIRECTIONS: Final = 128
"""Most directions (docs/adr/0036)."""
SHRINKAGE: Final = 0.005
"""Share of the mean variance that is added to all variances."""
ARRAYS: Final = ("center", "directions", "variances", "means", "factors")
LEAST: Final = 1e-12
"""Smallest variance added: where all photos are the same, there is none to share."""


@dataclass(frozen=True, slots=True, eq=False)
class SpreadStatistics:
    """Spreads of training photos.

    center ``(S,)``; directions ``(K, S)``: along them the covariance within classes is the identity, and the total one
    is diagonal, with variances ``(K,)``; means ``(classes, K)`` of the classes; factors ``(3,)``: of the squared
    distance from the span of the directions, and of the whole score in the familiarity, and what is added instead of
    the score for a leaf cut from a photo; inverse ``(K, K)``: of the products of the directions, which are not
    orthonormal.
    """

    center: Array
    directions: Array
    variances: Array
    means: Array
    factors: Array
    inverse: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inverse", np.linalg.pinv(self.directions @ self.directions.T, hermitian=True))

    def to_arrays(self) -> dict[str, Array]:
        arrays = {name: np.asarray(getattr(self, name), np.float32) for name in ARRAYS}
        return {SPREADS + name: array for name, array in to_tensors(round_to_eight_bits(arrays)).items()}

    def score(self, spreads: Array) -> Array:
        """Total less nearest squared distance of spreads ``(N, S)``, float64 ``(N,)``; higher is known."""
        x = np.asarray(spreads, np.float64) - self.center
        z = x @ self.directions.T
        outside = (x**2).sum(axis=1) - (z @ self.inverse * z).sum(axis=1)
        near = np.min([((z - mean) ** 2).sum(axis=1) for mean in self.means], axis=0)
        return np.asarray((z**2 / self.variances).sum(axis=1) - near + self.factors[0] * outside)

    def with_classes(self, spreads: Array, labels: Array) -> SpreadStatistics:
        """With the means of these photos' classes besides."""
        added = mean_of_classes((spreads - self.center) @ self.directions.T, labels)[0]
        return replace(self, means=np.concatenate((self.means, added)))


def mean_of_classes(x: Array, labels: Array) -> tuple[Array, Array]:
    """Means of the rows of each label that occurs, and the index of each row's mean."""
    _, index = np.unique(labels, return_inverse=True)
    return np.stack([x[index == label].mean(axis=0) for label in range(index.max() + 1)]), index


def fit_spreads(spreads: Array, labels: Array) -> SpreadStatistics:
    """The statistics of spreads ``(N, S)`` and labels ``(N,)``, rounded as in a file; the second factor is 1."""
    x = np.asarray(spreads, np.float64)
    center = x.mean(axis=0)
    x = x - center
    means, index = mean_of_classes(x, labels)
    basis = np.linalg.svd(x, full_matrices=False)[2][: max(min(DIRECTIONS, len(x) // PER_DIMENSION, x.shape[1] - 1), 1)]
    (within, outside_within), (total, outside) = (_variance(part, basis) for part in (x - means[index], x))
    white = np.linalg.inv(np.linalg.cholesky(within))
    variances, turned = np.linalg.eigh(white @ total @ white.T)
    directions = turned.T @ white @ basis
    factors = np.array([1 / outside - 1 / outside_within, 1.0, 0.0])
    found = read_spreads(SpreadStatistics(center, directions, variances, means @ directions.T, factors).to_arrays())
    assert found is not None
    return found


def _variance(x: Array, basis: Array) -> tuple[Array, float]:
    """Shrunk covariance of centred rows in the basis ``(K, S)``, and the mean variance outside it."""
    inside = x @ basis.T
    covariance, total = inside.T @ inside / len(x), float((x**2).sum()) / len(x)
    shrinkage = max(SHRINKAGE * total / x.shape[1], LEAST)
    rest = max(total - float(np.trace(covariance)), 0.0) / max(x.shape[1] - len(basis), 1)
    return covariance + shrinkage * np.eye(len(basis)), rest + shrinkage


def read_spreads(arrays: Mapping[str, Array]) -> SpreadStatistics | None:
    """The statistics of a model file, or None if it has none or they do not fit together. Raises ModelFileError."""
    stored = {name.removeprefix(SPREADS): array for name, array in arrays.items() if name.startswith(SPREADS)}
    found = {name: np.asarray(array, np.float64) for name, array in from_tensors(stored).weights.items()}
    if found.keys() != set(ARRAYS) or found["directions"].ndim != 2 or not found["means"].size:
        return None
    count, size = found["directions"].shape
    wanted = {"center": (size,), "variances": (count,), "means": (len(found["means"]), count), "factors": (3,)}
    fits = all(found[name].shape == shape for name, shape in wanted.items()) and (found["variances"] > 0).all()
    return SpreadStatistics(**found) if fits else None
