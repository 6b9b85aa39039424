"""Adapts a model to a place, such as a farm, from about ten photos of each class that occurs there.

The head is fitted (`core.diagnosis.head_fitting`) with replay for all classes (`core.diagnosis.replay`), and a second
branch of the last layers is trained (`core.diagnosis.place_branch`) that separates the classes of the place. Their
strengths are chosen, and the effect measured, by cross-validation with groups kept together, the choice repeated for
each fold. Temperatures and the subspace of familiar features follow; thresholds stay.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from core.diagnosis.calibration import crop_of, divide_logits, fit_class_temperatures, fit_temperature
from core.diagnosis.features import PER_DIMENSION, PrincipalSubspace, head_node, read_statistics
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head, make_folds
from core.diagnosis.metrics import cross_entropy, wilson_interval
from core.diagnosis.model_file import ModelFile, in_bits
from core.diagnosis.place_branch import Branch, fit_gate, is_branched, join_branch, train_branch
from core.diagnosis.prediction import Predictor
from core.diagnosis.replay import FeatureReplay, read_replay
from core.errors import DataError, InputError
from core.ops.contract import Array
from core.program import fold_batch_norm, fold_weights

PENALTIES: Final = (math.inf, 1.0, 0.1, 0.01)
"""Candidates of the penalty; infinite: the head is unchanged."""
SHARES: Final = (0.0, 1.0, 2.0)
"""Candidates of the branch's factor; 0: no branch."""
FEWEST: Final = 5
"""Fewest groups of photos of a class."""
FOLDS: Final = 4
REPLAYED: Final = 10
"""Features drawn for each class to fit the head."""
GATE_REPLAYED: Final = 30
"""And to fit the gate."""
LINEAR: Final = 0.02
"""Largest difference between the network's logits and the head's: above it the head is not linear."""
SIGNIFICANT: Final = 0.05


@final
@dataclass(frozen=True, slots=True, eq=False)
class Adaptation:
    """The adapted model, None if no change helps; held-out photos that were correct before and after: bool ``(N,)``."""

    model: ModelFile | None
    before: Array
    after: Array

    def describe(self) -> str:
        """Before and after on held-out photos, and whether so many photos show a difference."""
        gained, lost = int((self.after & ~self.before).sum()), int((self.before & ~self.after).sum())
        chance = sign_test(gained, lost)
        text = (f"On held-out photos of the place: before {_share(self.before)}, after {_share(self.after)}. {gained} "
                f"became correct, {lost} became wrong (sign test: p = {chance:.3f}).")  # fmt: skip
        if chance < SIGNIFICANT:
            return f"{text} The adapted model is {'better' if gained > lost else 'worse'} here."
        return f"{text} So few photos cannot show that the adapted model is better here."


@final
@dataclass(frozen=True, slots=True, eq=False)
class PlacePhotos:
    """Photos uint8 ``(N, side, side, 3)`` of a place, with the model's features and logits ``(N, classes)`` of them."""

    photos: Array
    samples: Samples
    logits: Array


def adapt_model(
    model: ModelFile, place: PlacePhotos, seed: int = 0, device: str = "cpu", threads: int = 0
) -> Adaptation:
    """Adapt a model to photos of a place. Raises DataError or InputError if that is not possible."""
    photos, labels = place.samples, place.samples.labels
    check_photos(model, photos)
    head, known = read_head(model), read_replay(model.extra, read_statistics(model.extra), len(model.classes))
    if is_branched(model.graph):
        raise InputError("This model is adapted already. Adapt the model that it was made from, to all photos at once.")
    fits = head_node(model.graph).op == "dense" and head.weight.shape[1] == photos.features.shape[1]
    if known is None or not fits or np.abs(head.logits(photos.features) - place.logits).max() > LINEAR:
        raise InputError("This model cannot be adapted: its file has no feature replay, or its classifier is not "
                         "linear. Use the shipped model leaves, or train with --from.")  # fmt: skip
    folds = make_folds(labels, photos.groups, FOLDS)
    fitted, logits = _fit_head(head, known, photos, folds, seed)
    branch, moves = _train_branch(model, known, place, folds, seed, device, threads)
    held_out = np.empty_like(logits)
    for fold in np.unique(folds):
        share = _choose_share(logits[folds != fold], moves[:, folds != fold], labels[folds != fold])
        held_out[folds == fold] = (logits + moves[share])[folds == fold]
    share = _choose_share(logits, moves, labels)
    before, after = (z.argmax(axis=1) == labels for z in (place.logits, held_out))
    if (fitted is head and not SHARES[share]) or after.sum() < before.sum():
        return Adaptation(None, before, after)
    adapted = _with_head(model, fitted)
    if SHARES[share]:
        graph, weights = join_branch(adapted.graph, adapted.weights, branch, SHARES[share])
        adapted = replace(adapted, graph=graph, weights=weights)
    adapted = in_bits(adapted, 8 if model.steps else 16 if model.half else 32)
    adapted = _with_familiarity(_with_temperatures(adapted, logits + moves[share], labels), photos.features)
    return Adaptation(adapted, before, after)


def _fit_head(
    head: LinearHead, known: FeatureReplay, photos: Samples, folds: Array, seed: int
) -> tuple[LinearHead, Array]:
    """The head fitted to all photos, and held-out logits of heads fitted without each fold."""
    # no photo leaves this subspace, and fits in it are ten times faster
    basis = np.linalg.qr(np.c_[known.basis, (photos.features - known.center).T])[0]
    small = LinearHead(head.weight @ basis, head.bias + head.weight @ known.center)
    reduced = replace(photos, features=(photos.features - known.center) @ basis)
    features, labels = known.draw(REPLAYED, seed)
    drawn = Samples((features - known.center) @ basis, labels, labels)
    held_out = np.empty((len(folds), len(head.bias)))
    for fold in np.unique(folds):
        fitted = _fit(small, reduced.take(np.flatnonzero(folds != fold)), drawn)
        held_out[folds == fold] = fitted.logits(reduced.features[folds == fold])
    final = _fit(small, reduced, drawn)
    if final is small:
        return head, held_out
    weight = head.weight + (final.weight - small.weight) @ basis.T
    return LinearHead(weight, final.bias - weight @ known.center), held_out


def _train_branch(
    model: ModelFile, known: FeatureReplay, place: PlacePhotos, folds: Array, seed: int, device: str, threads: int
) -> tuple[Branch, Array]:
    """The mean of branches trained without each fold, and what they add to held-out logits: ``(SHARES, N, classes)``.

    The mean is correct more often than one of them, and none has to be trained on all photos.
    """
    labels, features = place.samples.labels, place.samples.features - known.center
    replay = known.draw(GATE_REPLAYED, seed)[0] - known.center
    graph, weights = fold_batch_norm(model.graph), fold_weights(model.graph, model.weights)
    mean: dict[str, Array] = {}
    logits, opened = np.empty((len(folds), len(model.classes))), np.empty(len(folds))
    parts = np.unique(folds)
    for fold in parts:
        rows, out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        trained = train_branch(graph, weights, place.photos[rows], labels[rows], seed + int(fold), device, threads)
        mean = {name: mean.get(name, 0) + array / len(parts) for name, array in trained.items()}
        with closing(Predictor(replace(model, graph=graph, weights=trained), device=device, threads=threads)) as one:
            logits[out] = one.predict(place.photos[out])["logits"]
        opened[out] = fit_gate(features[rows], replay).open(features[out])
    gate = fit_gate(features, replay)
    gate = replace(gate, bias=gate.bias - float(gate.weight @ known.center))
    own = np.unique(labels)
    apart = logits[:, own] - logits[:, own].mean(axis=1, keepdims=True)
    # at 0 the sum of the classes' probabilities would grow, and other crops be named too often; halfway is a compromise
    costs = [float(np.log(np.exp(share * apart).mean(axis=1)).mean()) / 2 for share in SHARES]
    moves = np.zeros((len(SHARES), *logits.shape))
    for move, share, cost in zip(moves, SHARES, costs, strict=True):
        move[:, own] = opened[:, None] * (share * apart - cost)
    return Branch(mean, gate, own, dict(zip(SHARES, costs, strict=True))), moves


def _choose_share(logits: Array, moves: Array, labels: Array) -> int:
    """Index of the branch's factor with the least loss on held-out photos."""
    return int(np.argmin([_loss(logits + move, labels) for move in moves]))


def check_photos(model: ModelFile, photos: Samples) -> None:
    """Raises DataError if the photos have one class only, or too few of a class."""
    pairs = np.unique(np.stack((photos.labels, photos.groups)), axis=1)
    present, counts = np.unique(pairs[0], return_counts=True)
    if len(present) < 2:
        raise DataError("The photos of the place have one class only. Add another, such as healthy leaves: with one "
                        "class the model would learn to always predict it.")  # fmt: skip
    few = [f"{model.classes[at]} ({n})" for at, n in zip(present, counts, strict=True) if n < FEWEST]
    if few:
        raise DataError(
            f"Each class needs photos of at least {FEWEST} different leaves, better 10. Near-duplicates "
            f"and photos from one burst count once. Too few: {', '.join(few)}."
        )


def sign_test(gained: int, lost: int) -> float:
    """Two-sided p-value of the sign test (McNemar's exact test) for so many changes to correct and to wrong."""
    total = gained + lost
    tail = sum(math.comb(total, k) for k in range(max(gained, lost), total + 1))
    return min(1.0, float(2 * tail / 2**total))


def _fit(head: LinearHead, photos: Samples, drawn: Samples) -> LinearHead:
    """Fit with the penalty that has the least cross-validated loss."""
    folds = make_folds(photos.labels, photos.groups, FOLDS)

    def loss(penalty: float) -> float:
        logits = np.empty((len(photos.labels), len(head.bias)))
        for fold in np.unique(folds):
            fitted = fit_head(head, photos.take(np.flatnonzero(folds != fold)), drawn, penalty)
            logits[folds == fold] = fitted.logits(photos.features[folds == fold])
        return _loss(logits, photos.labels)

    return fit_head(head, photos, drawn, min(PENALTIES, key=loss))


def _loss(logits: Array, labels: Array) -> float:
    """Mean cross entropy at the best temperature."""
    return float(cross_entropy(logits / fit_temperature(logits, labels), labels).mean())


def _share(right: Array) -> str:
    low, high = wilson_interval(int(right.sum()), len(right))
    return (f"{right.sum()} of {len(right)} correct ({100 * right.mean():.1f} %, 95 % interval {100 * low:.1f} to "
            f"{100 * high:.1f} %)")  # fmt: skip


def read_head(model: ModelFile) -> LinearHead:
    name = head_node(model.graph).name
    weight = np.asarray(model.weights[f"{name}.weight"], np.float64)
    bias = np.asarray(model.weights.get(f"{name}.bias", np.zeros(len(weight))), np.float64)
    return LinearHead(weight.reshape(len(weight), -1), bias)


def _with_head(model: ModelFile, head: LinearHead) -> ModelFile:
    """The model with this head and its batch norm folded."""
    name, weights = head_node(model.graph).name, fold_weights(model.graph, model.weights)
    weights |= {f"{name}.weight": head.weight.astype(np.float32), f"{name}.bias": head.bias.astype(np.float32)}
    return replace(model, graph=fold_batch_norm(model.graph), weights=weights)


def _with_temperatures(model: ModelFile, held_out: Array, labels: Array) -> ModelFile:
    """Temperatures of the crops with enough held-out photos, near those before."""
    z = divide_logits(held_out, model.temperature, model.class_temperatures)
    factors = fit_class_temperatures(z, labels, [crop_of(name) for name in model.classes], 1.0)
    before = model.class_temperatures or (model.temperature,) * len(model.classes)
    after = tuple(old * factor for old, factor in zip(before, factors, strict=True)) if factors else before
    return replace(model, class_temperatures=after)


def _with_familiarity(model: ModelFile, features: Array) -> ModelFile:
    """Extend the subspace of familiar features by the directions in which the place's photos leave it."""
    space = read_statistics(model.extra)
    assert isinstance(space, PrincipalSubspace)
    basis, x = space.basis.astype(np.float64), features - space.center
    directions = np.linalg.svd(x - x @ basis @ basis.T, full_matrices=False)[2][: len(x) // PER_DIMENSION]
    wider = PrincipalSubspace(space.center, np.c_[basis, directions.T], space.scale)
    return replace(model, extra={**model.extra, **wider.to_arrays()})
