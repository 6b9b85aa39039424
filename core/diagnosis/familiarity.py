"""How familiar a photo is: scores that are high for what was learned and low for anything else.

From logits: the largest probability, the largest logit, the energy (Liu et al., 2020). From pooled features:
distance to the nearest class mean (Lee et al., 2018), the same less the distance to the mean of all (Ren et al.,
2021), and the distance to the nearest training photos (Sun et al., 2022). Which one is used is chosen by measuring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from core.diagnosis.metrics import softmax
from core.ops.contract import Array

DIMENSIONS: Final = 128
"""Most directions kept of the features, those that part the classes best: of a crop never seen 64 % are refused
where 2 % of known leaves are, with 64 directions 53 % (chilli, validation photos)."""
FEWEST: Final = 64
PER_DIMENSION: Final = 20
"""Photos that each direction beyond `FEWEST` rests on: spreads of few photos are no measure."""
SHRINK: Final = 0.05
"""Part of the identity mixed into covariances, so that few photos cannot make them singular."""
NEEDS_FEATURES: Final = ("mahalanobis", "relative")
SCORES: Final = ("probability", "max_logit", "energy", *NEEDS_FEATURES)
FEATURES: Final = "features."
"""Prefix of the statistics' names in a model file."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class FeatureStatistics:
    """Where the classes lie in feature space, after training.

    center ``(F,)`` and whiten ``(F, D)`` turn features into coordinates in which the spread within classes is 1;
    means ``(classes, D)``; spread ``(D,)``: variance of all training photos there. whiten holds nearly all numbers, of
    float16 where that can be: AUROC and refusals of the shipped model are the same (0.9882, 205 photos of rice).
    """

    center: Array
    whiten: Array
    means: Array
    spread: Array

    def to_arrays(self) -> dict[str, Array]:
        return {
            "features.center": self.center.astype(np.float32), "features.whiten": _narrow(self.whiten),
            "features.means": self.means.astype(np.float32), "features.spread": self.spread.astype(np.float32),
        }  # fmt: skip

    @staticmethod
    def from_arrays(arrays: Mapping[str, Array]) -> FeatureStatistics | None:
        """The statistics of a model file, or None where it has none or they do not fit together."""
        try:
            parts = [arrays[f"features.{name}"] for name in ("center", "whiten", "means", "spread")]
        except KeyError:
            return None
        center, whiten, means, spread = parts
        fits = (
            all(part.dtype.kind == "f" for part in parts) and center.ndim == spread.ndim == 1
            and whiten.ndim == means.ndim == 2 and whiten.shape[0] == len(center)
            and means.shape[1] == whiten.shape[1] == len(spread) and bool((spread > 0).all())
        )  # fmt: skip
        return FeatureStatistics(center, whiten, means, spread) if fits else None


def fit_statistics(features: Array, labels: Array, classes: int, dimensions: int = DIMENSIONS) -> FeatureStatistics:
    """Statistics of pooled training features ``(N, F)``; every class needs at least one photo."""
    x = np.asarray(features, np.float64)
    kept = min(dimensions, max(FEWEST, len(x) // PER_DIMENSION), x.shape[1])
    center = x.mean(axis=0)
    means = np.stack([x[labels == c].mean(axis=0) for c in range(classes)])
    rest = x - means[labels]
    within = rest.T @ rest / len(x)
    within += SHRINK * np.trace(within) / len(within) * np.eye(len(within))
    whitening = np.linalg.inv(np.linalg.cholesky(within)).T  # of eigenvectors: seven times the time
    around = (means - center) @ whitening
    # directions in which the class means differ most, then (if there is room) those of largest spread
    z = (x - center) @ whitening
    directions = np.linalg.eigh(z.T @ z)[1].T[::-1]
    between = np.linalg.svd(around, full_matrices=False)[2][: classes - 1]
    basis = np.linalg.qr(np.concatenate((between, directions))[:kept].T)[0]
    whiten = whitening @ basis
    # in few directions the spread within classes is well known: whiten again, without shrinking
    left = rest @ whiten
    values, vectors = np.linalg.eigh(left.T @ left / len(x) + 1e-6 * np.eye(whiten.shape[1]))
    whiten = _narrow(whiten @ (vectors / np.sqrt(values))).astype(np.float64)  # as it will be stored
    z = (x - center) @ whiten
    return FeatureStatistics(center, whiten, (means - center) @ whiten, z.var(axis=0) + 1e-6)


def _narrow(whiten: Array) -> Array:
    """Numbers of float16, or of float32 where the largest or smallest features ask for more."""
    with np.errstate(over="ignore"):
        half = whiten.astype(np.float16)
    error = np.abs(half.astype(np.float64) - whiten).max()
    return half if error <= np.abs(whiten).max() * 2.0**-11 else whiten.astype(np.float32)


def coordinates(features: Array, statistics: FeatureStatistics) -> Array:
    """Pooled features ``(N, F)`` in whitened coordinates, float64 ``(N, D)``."""
    return np.asarray((np.asarray(features, np.float64) - statistics.center) @ statistics.whiten)


def familiarity(
    name: str, logits: Array, features: Array | None, statistics: FeatureStatistics | None, temperature: float = 1.0
) -> Array:
    """One of `SCORES` for logits ``(N, classes)`` and pooled features ``(N, F)``: float64 ``(N,)``, higher is known."""
    if name == "probability":
        return np.asarray(softmax(logits, temperature).max(axis=1))
    z = logits.astype(np.float64) / temperature
    if name == "max_logit":
        return np.asarray(z.max(axis=1))
    if name == "energy":
        top = z.max(axis=1)
        return np.asarray(top + np.log(np.exp(z - top[:, None]).sum(axis=1)))
    if features is None or statistics is None:
        raise ValueError(f"The score {name!r} needs features and their statistics.")
    x = coordinates(features, statistics)
    near = (((x[:, None] - statistics.means[None]) ** 2).sum(axis=-1)).min(axis=1)
    if name == "mahalanobis":
        return np.asarray(-near)
    if name == "relative":
        return np.asarray((x**2 / statistics.spread).sum(axis=1) - near)
    raise ValueError(f"There is no score {name!r}.")


def auroc(known: Array, unknown: Array) -> float:
    """Chance that a known photo scores above an unknown one (ties count half): area under the ROC curve."""
    scores = np.concatenate((known, unknown))
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ordered = scores[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.append(starts[1:], len(ordered))
    for start, end in zip(starts, ends, strict=True):
        ranks[order[start:end]] = (start + end + 1) / 2
    n, m = len(known), len(unknown)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))
