"""Finds photos whose label is probably wrong, by confident learning, and the photos that are worth labelling next.

A small head on the network's features is cross-validated, so each photo is predicted by a head that has not seen its
label, nor that of a near-duplicate or of another photo of its leaf (Northcutt, Jiang and Chuang, "Confident Learning",
Journal of Artificial Intelligence Research 70, 2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from core.data.dataset import ReportProgress, ignore
from core.data.loader import occurrences
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head, make_folds
from core.diagnosis.metrics import softmax
from core.errors import DataError
from core.ops.contract import Array
from core.percent import SPACE, stated

FOLDS: Final = 5
FEWEST: Final = 5
"""Fewest groups of a class: with fewer, most folds train on almost none of its photos."""
COMPONENTS: Final = 128
"""Principal components of the features that the head is fitted on."""
PENALTY: Final = 1e-3
"""Of `fit_head`, for features of mean squared length 1; from 1e-4 to 1e-2 the ranking hardly changes."""
NEIGHBOURS: Final = 5
CLUSTERS: Final = 500
"""Most clusters of `choose_photos`."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A photo that the head assigns to another class than its label.

    row: of the reviewed photos; label, suggested: class indices; confidence: out-of-fold probability of the label;
    probability: of the suggested class; agreeing: how many of the NEIGHBOURS nearest photos have the suggested label.
    """

    row: int
    label: int
    suggested: int
    confidence: float
    probability: float
    agreeing: int

    def describe(self, classes: Sequence[str]) -> str:
        probability = stated(self.probability).replace(SPACE, " ")
        return (f"labelled {classes[self.label]}; {probability} {classes[self.suggested]}; {self.agreeing} of its "
                f"{NEIGHBOURS} nearest photos are labelled {classes[self.suggested]}")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Review:
    """suspects: most suspicious first; agreement: share of the reviewed photos predicted as labelled; few: classes with
    fewer than FEWEST groups, whose photos are not reviewed."""

    suspects: tuple[Suspect, ...]
    agreement: float
    few: tuple[int, ...]


def review_labels(photos: Samples, classes: int, advance: ReportProgress = ignore) -> Review:
    """Rank the photos with a suspicious label; `advance(fold, folds)` is called before each fold and may raise.

    Raises DataError if every class has too few groups.
    """
    pairs = np.unique(np.stack((photos.labels, photos.groups)), axis=1)
    group_counts = np.bincount(pairs[0], minlength=classes)
    reviewed = group_counts >= FEWEST
    if not reviewed.any():
        raise DataError(f"No class has photos of {FEWEST} leaves or more, so no label can be reviewed. Add photos.")
    x = project_features(photos.features)
    probabilities = predict_out_of_fold(Samples(x, photos.labels, photos.groups), classes, advance)
    labels, rows = photos.labels, np.arange(len(photos.labels))
    confidence = probabilities[rows, labels]
    suggested = _confident_class(probabilities, labels, reviewed)
    agreeing = reviewed[labels] & (probabilities.argmax(axis=1) == labels)
    suspicious = np.flatnonzero(reviewed[labels] & (suggested >= 0) & (suggested != labels))
    suspicious, suspects = suspicious[np.argsort(confidence[suspicious], kind="stable")], []
    for row, nearest in zip(suspicious.tolist(), _nearest(x, photos.groups, suspicious), strict=True):
        label = int(suggested[row])
        suspects.append(Suspect(row, int(labels[row]), label, float(confidence[row]),
                                float(probabilities[row, label]), int((labels[nearest] == label).sum())))
    agreement = float(agreeing.sum() / max(reviewed[labels].sum(), 1))
    return Review(tuple(suspects), agreement, tuple(np.flatnonzero((group_counts > 0) & ~reviewed).tolist()))


def project_features(features: Array) -> Array:
    """The first COMPONENTS principal components of standardized features, with mean squared length 1."""
    x = np.asarray(features, np.float64) - features.mean(axis=0)
    x /= np.maximum(x.std(axis=0), 1e-3 * x.std() + 1e-12)  # joined networks have features of different scales
    x = x @ np.linalg.eigh(x.T @ x)[1][:, : -COMPONENTS - 1 : -1]
    return np.asarray(x / max(np.sqrt((x**2).sum(axis=1).mean()), 1e-12))


def fit_classes(photos: Samples, classes: int) -> LinearHead:
    """A head for projected features, by softmax regression."""
    return fit_head(LinearHead(np.zeros((classes, photos.features.shape[1])), np.zeros(classes)), photos, None, PENALTY)


def predict_out_of_fold(photos: Samples, classes: int, advance: ReportProgress = ignore) -> Array:
    """Probabilities ``(N, classes)`` of heads that were fitted to the photos of other folds; groups stay together."""
    folds = make_folds(photos.labels, photos.groups, FOLDS)
    out = np.empty((len(folds), classes))
    for fold in range(FOLDS):
        advance(fold, FOLDS)
        head = fit_classes(photos.take(np.flatnonzero(folds != fold)), classes)
        out[folds == fold] = softmax(head.logits(photos.features[folds == fold]))
    return out


def _confident_class(probabilities: Array, labels: Array, reviewed: Array) -> Array:
    """The most probable class above its threshold (the mean probability of photos with its label), -1 if none."""
    of_label = probabilities[np.arange(len(labels)), labels]
    sums, counts = (np.bincount(labels, weights, len(reviewed)) for weights in (of_label, None))
    thresholds = np.where(reviewed, sums / np.maximum(counts, 1), np.inf)
    above = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(above.max(axis=1) >= 0, above.argmax(axis=1), -1)


def _nearest(x: Array, groups: Array, rows: Array) -> Iterator[Array]:
    """For each row the NEIGHBOURS photos of other groups that are nearest by cosine similarity."""
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    for some in np.array_split(rows, len(rows) // 64 + 1):
        similarity = np.where(groups == groups[some, None], -np.inf, unit[some] @ unit.T)
        yield from np.argpartition(similarity, -NEIGHBOURS)[:, -NEIGHBOURS:]


def choose_photos(labelled: Samples, pool: Array, classes: int, count: int, seed: int = 0) -> Array:
    """Rows of the `pool` of features ``(M, F)`` that are most informative when labelled: uncertain and diverse.

    All photos are clustered by k-means. Clusters with the fewest labelled photos come first, the largest of them first;
    of each the photo with the smallest margin between its two most probable classes is taken (clusters as in TypiClust,
    Hacohen, Dekel and Weinshall, ICML 2022; margins instead of density).
    """
    known = len(labelled.labels)
    x = project_features(np.concatenate((labelled.features, pool)))
    head = fit_classes(Samples(x[:known], labelled.labels, labelled.groups), classes)
    ranked = np.sort(softmax(head.logits(x[known:])), axis=1)
    margin = ranked[:, -1] - ranked[:, -2]
    clusters = min(known + count, CLUSTERS, len(x))
    cv2.setRNGSeed(seed)
    criteria = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 20, 1e-3)
    cluster = cv2.kmeans(x.astype(np.float32), clusters, None, criteria, 1, cv2.KMEANS_PP_CENTERS)[1].ravel()
    labelled_count, size = (np.bincount(part, minlength=clusters) for part in (cluster[:known], cluster[known:]))
    cluster, by_margin = cluster[known:], np.argsort(margin, kind="stable")
    rank_in_cluster = np.empty(len(cluster), np.int64)
    rank_in_cluster[by_margin] = occurrences(cluster[by_margin])
    return np.lexsort((margin, -size[cluster], labelled_count[cluster], rank_in_cluster))[:count]
