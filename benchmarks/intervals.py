"""Statistics of results: the bootstrap over groups, for figures such as macro F1, and the area under the ROC curve."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core.ops.contract import Array


def bootstrap_interval(
    statistic: Callable[[Array], float], groups: Array, *, rounds: int = 1000, seed: int = 0, level: float = 0.95
) -> tuple[float, float]:
    """Interval of ``statistic(indices)`` over photos drawn again by whole groups, int ``(N,)`` (photos of one leaf).

    Photos of one leaf are right or wrong together; drawing them one by one would make the interval too small.
    Source: Efron and Tibshirani, "An introduction to the bootstrap", 1993, percentile interval.
    """
    names, which = np.unique(groups, return_inverse=True)
    members = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(rounds):
        drawn = rng.integers(0, len(names), len(names))
        values.append(statistic(np.concatenate([members[i] for i in drawn])))
    low, high = np.quantile(values, ((1 - level) / 2, (1 + level) / 2))
    return (float(low), float(high))


def auroc(known: Array, unknown: Array) -> float:
    """Chance that a known photo scores above an unknown one (ties count half): area under the ROC curve."""
    return float((known[:, None] > unknown).mean() + (known[:, None] == unknown).mean() / 2)
