"""Adapts a model to a place, such as a farm, from about ten photos of each class that occurs there.

The head is fitted (`core.diagnosis.head_fitting`) with replay for all classes (`core.diagnosis.replay`). A second
branch of the last layers is trained to separate the classes of the place (`core.diagnosis.place_branch`). Nested
cross-validation by group chooses the penalty and whether there is a branch, and measures the effect. Then temperatures,
the subspace of familiar features and the familiarity threshold are updated; the confidence thresholds are not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from core.data.dataset import ReportStage, ignore
from core.diagnosis.calibration import crop_of, fit_class_temperatures, fit_temperature
from core.diagnosis.familiarity import Familiarity, read_familiarity
from core.diagnosis.features import PER_DIMENSION, NetworkOutputs, PrincipalSubspace, head_node, read_statistics
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head, make_folds
from core.diagnosis.metrics import Subset, cross_entropy
from core.diagnosis.model_file import ModelFile, in_bits
from core.diagnosis.place_branch import (
    FIRST,
    LAST,
    Branch,
    Schedule,
    fit_gate,
    is_branched,
    join_branch,
    keep_classes,
    train_branch,
)  # fmt: skip
from core.diagnosis.prediction import Predictor
from core.diagnosis.replay import FeatureReplay, read_replay
from core.diagnosis.thresholds import SECTION
from core.errors import DataError, InputError
from core.ops.contract import Array
from core.percent import rounded
from core.program import fold_batch_norm, fold_weights

Weights: TypeAlias = Mapping[str, Array]
PENALTIES: Final = (math.inf, 1.0, 0.1, 0.01)
"""Candidates for the penalty of `fit_head`; inf leaves the head unchanged."""
MIN_GROUPS: Final = 5
"""Smallest number of groups of photos per class."""
FOLDS: Final = 4
HEAD_REPLAY: Final = 10
GATE_REPLAY: Final = 30
"""Features drawn per class to fit the head, and to fit the gate."""
LINEAR_TOLERANCE: Final = 0.02
"""Largest difference between the logits of the network and of a linear head."""
SIGNIFICANCE_LEVEL: Final = 0.05
SHARPEST: Final = 0.75
"""Least factor of temperatures with a branch, whose logits have a scale of their own: over nine adaptations the loss on
photos of the place was smallest at temperatures of 0.7 to 0.9 (benchmarks/results/adaptation.json)."""
PLACE_REJECTED: Final = 0.1
"""Share of the place's photos that may be rejected as unfamiliar, so that fewer photos of unknown crops are accepted:
the branch raises the energy of both (benchmarks/results/adaptation.json)."""


@dataclass(frozen=True, slots=True, eq=False)
class Adaptation:
    """model: None if no change helps; before, after: which held-out photos are classified correctly, bool ``(N,)``,
    more after than before where there is a model; groups: of dependent photos, int ``(N,)``."""

    model: ModelFile | None
    before: Array
    after: Array
    groups: Array

    def describe(self) -> tuple[str, ...]:
        """Sentences: the accuracy before and after, how photos in groups count, what changed, whether it is
        significant, and the test of that, which counts groups by the sum of the changes of their photos."""
        parts = [Subset.count("Before", self.before, self.groups), Subset.count("After", self.after, self.groups)]
        sentences = [_describe(part) for part in parts]
        gained, lost = int((self.after & ~self.before).sum()), int((self.before & ~self.after).sum())
        numbers = np.unique(self.groups, return_inverse=True)[1]
        changes = np.bincount(numbers, self.after.astype(int) - self.before)
        better, worse = int((changes > 0).sum()), int((changes < 0).sum())
        p = sign_test(better, worse)
        if self.model is None:
            verdict = "No change of the model predicts held-out photos of this place better. Nothing was written."
        elif better > worse and p < SIGNIFICANCE_LEVEL:
            verdict = "The adapted model is better here."
        else:
            verdict = "So few photos cannot show that the adapted model is better here."
        chance = f"= {p:.3f}" if p >= 0.001 else "< 0.001"
        if len(changes) < len(numbers):
            before, after = (part.photos / part.effect for part in parts)
            sentences.append(f"The intervals take groups into account: {len(numbers)} held-out photos (groups: "
                             f"{len(changes)}) count as {before:.0f} before and {after:.0f} after.")  # fmt: skip
        return (*sentences, f"{gained} became correct, {lost} became wrong.", verdict,
                f"Sign test over groups: p {chance}.")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class PlacePhotos:
    """Photos uint8 ``(N, side, side, 3)`` of a place, with the model's features, logits and spreads for them."""

    photos: Array
    samples: Samples
    logits: Array
    spreads: Array | None = None


def adapt_model(
    model: ModelFile, place: PlacePhotos, seed: int = 0, device: str = "cpu", threads: int = 0,
    report: ReportStage = ignore,
) -> Adaptation:  # fmt: skip
    """Adapt a model to photos of a place. Raises DataError or InputError if the photos or the model do not allow it."""
    photos, labels = place.samples, place.samples.labels
    head, replay = check_model(model, place)
    folds = make_folds(labels, photos.groups, FOLDS)
    # of a subspace in which all centred features are; fitting in it is ten times faster
    basis = np.linalg.qr(np.c_[replay.basis, (photos.features - replay.center).T])[0]
    fitted, head_logits = _fit_head(head, replay, basis, photos, folds, seed, report)
    finish_branch, branch_logits = _train_branch(
        model, head_logits, replay, basis, place, folds, seed, device, threads, report
    )
    candidates, held_out = np.stack((head_logits, branch_logits)), np.empty_like(head_logits)
    for fold in np.unique(folds):
        chosen = _choose(candidates[:, folds != fold], labels[folds != fold])
        held_out[folds == fold] = candidates[chosen, folds == fold]
    chosen = _choose(candidates, labels)
    before, after = (z.argmax(axis=1) == labels for z in (place.logits, held_out))
    after = before if fitted is head and not chosen else after  # the model stays as it is
    if after.sum() <= before.sum():
        return Adaptation(None, before, after, photos.groups)
    adapted = _with_head(model, fitted)
    if chosen:
        graph, weights = join_branch(adapted.graph, adapted.weights, finish_branch())
        adapted = replace(adapted, graph=graph, weights=weights)
    adapted = in_bits(adapted, 8 if model.steps else 16 if model.half else 32)
    adapted = _with_temperatures(adapted, candidates[chosen], labels)
    seen = NetworkOutputs(candidates[chosen], photos.features, place.spreads)
    adapted = _with_familiarity(adapted, seen, labels, folds)
    return Adaptation(adapted, before, after, photos.groups)


def _fit_head(
    head: LinearHead, replay: FeatureReplay, basis: Array, photos: Samples, folds: Array, seed: int, report: ReportStage
) -> tuple[LinearHead, Array]:
    """Fit the head to all photos. Also returns logits ``(N, classes)`` of heads that are fitted without each fold."""
    start = LinearHead(head.weight @ basis, head.bias + head.weight @ replay.center)
    projected = replace(photos, features=(photos.features - replay.center) @ basis)
    features, labels = replay.draw(HEAD_REPLAY, seed)
    drawn = Samples((features - replay.center) @ basis, labels, labels)
    held_out, numbers, done = np.empty((len(folds), len(head.bias))), np.unique(folds), itertools.count(1)

    def advance() -> None:
        report("head", next(done), (len(numbers) + 1) * len(PENALTIES))

    for fold in numbers:
        fitted = _fit(start, projected.take(np.flatnonzero(folds != fold)), drawn, advance)
        held_out[folds == fold] = fitted.logits(projected.features[folds == fold])
    fitted = _fit(start, projected, drawn, advance)
    if fitted is start:
        return head, held_out
    weight = head.weight + (fitted.weight - start.weight) @ basis.T
    return LinearHead(weight, fitted.bias - weight @ replay.center), held_out


def _train_branch(
    model: ModelFile, head_logits: Array, replay: FeatureReplay, basis: Array, place: PlacePhotos, folds: Array,
    seed: int, device: str, threads: int, report: ReportStage,
) -> tuple[Callable[[], Branch], Array]:  # fmt: skip
    """Train one branch without each fold. Returns a function that trains one to predict what they predict together, and
    the logits of head and branch for the photos that they have not seen, ``(N, classes)``."""
    classes, labels = np.unique(place.samples.labels, return_inverse=True)
    drawn, _ = replay.draw(GATE_REPLAY, seed)
    features, replayed = ((x - replay.center) @ basis for x in (place.samples.features, drawn))
    network = keep_classes(fold_batch_norm(model.graph), fold_weights(model.graph, model.weights), classes)
    names = tuple(model.classes[i] for i in classes)
    of_place = replace(model, graph=network[0], classes=names, class_temperatures=())
    numbers, done = np.unique(folds), itertools.count(1)
    total = len(numbers) * FIRST.steps + LAST.steps  # the last only where a model is written

    def train(weights: Weights, rows: Array, schedule: Schedule, seeds: int, *teachers: Weights) -> Weights:
        return train_branch(network[0], weights, place.photos[rows], labels[rows], schedule, seed + seeds, device,
                            threads, lambda *_: report("adapt", next(done), total), teachers)  # fmt: skip

    trained: list[Weights] = []
    logits, gates = np.empty((len(folds), len(classes))), np.empty(len(folds))
    for fold in numbers:
        rows, held_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        trained.append(train(network[1], rows, FIRST, int(fold)))
        with closing(Predictor(replace(of_place, weights=trained[-1]), device=device, threads=threads)) as predictor:
            logits[held_out] = predictor.predict(place.photos[held_out])["logits"]
        gates[held_out] = fit_gate(features[rows], replayed).open(features[held_out])
    before, own = (z - z.mean(axis=1, keepdims=True) for z in (head_logits[:, classes], logits))
    # minus all of `_log_mean(own)` would keep the total probability of the place's classes, which is too low
    level = _log_mean(before) - _log_mean(own) / 2
    joined = head_logits.copy()
    joined[:, classes] += gates[:, None] * (own + level - before)

    def finish() -> Branch:
        mean = {name: np.mean([weights[name] for weights in trained], axis=0) for name in trained[0]}
        last = train(mean, np.arange(len(folds)), LAST, len(numbers), *trained)
        return Branch(last, fit_gate(features, replayed).lift(basis, replay.center), classes, level)

    return finish, joined


def _log_mean(logits: Array) -> float:
    """Mean over the photos of the logarithm of the mean of ``exp(logits)``."""
    return float(np.log(np.exp(logits).mean(axis=1)).mean())


def _choose(candidates: Array, labels: Array) -> int:
    """Index of the candidate with the smallest loss; candidates: held-out logits ``(C, N, classes)``."""
    return int(np.argmin([_loss(logits, labels) for logits in candidates]))


def check_model(model: ModelFile, place: PlacePhotos | None = None) -> tuple[LinearHead, FeatureReplay]:
    """The model's head and feature replay. Raises InputError if it cannot be adapted, as far as known without photos;
    with photos also DataError if they are too few."""
    if is_branched(model.graph):
        raise InputError("This model is adapted already. Adapt the model that it was made from, to all photos at once.")
    head, replay = read_head(model), read_replay(model.extra, read_statistics(model.extra), len(model.classes))
    node = head_node(model.graph)
    fits = node.op == "dense" and node.attributes["bias"] and (place is None or _is_linear(head, place))
    if replay is None or model.thresholds is None or not fits:
        raise InputError("This model cannot be adapted: its file has no feature replay, or its classifier is not a "
                         "linear layer with a bias. Use the shipped model leaves, or train with --from.")  # fmt: skip
    if place is not None:
        check_counts(model.classes, place.samples.labels, place.samples.groups)
    return head, replay


def _is_linear(head: LinearHead, place: PlacePhotos) -> bool:
    features = place.samples.features
    return (head.weight.shape[1] == features.shape[1]
            and float(np.abs(head.logits(features) - place.logits).max()) <= LINEAR_TOLERANCE)  # fmt: skip


def check_counts(classes: Sequence[str], labels: Array, groups: Array) -> None:
    """Raise DataError if there are too few groups of a class."""
    pairs = np.unique(np.stack((labels, groups)), axis=1)
    present, counts = np.unique(pairs[0], return_counts=True)
    few = [f"{classes[label]} ({n})" for label, n in zip(present, counts, strict=True) if n < MIN_GROUPS]
    if few:
        raise DataError(
            f"Each class needs photos of at least {MIN_GROUPS} different leaves, better 10. Near-duplicates "
            f"and photos from one burst count once. Too few: {', '.join(few)}."
        )


def sign_test(gained: int, lost: int) -> float:
    """Two-sided p-value of the sign test (McNemar's exact test); gained, lost: groups that became better and worse."""
    total = gained + lost
    tail = sum(math.comb(total, k) for k in range(max(gained, lost), total + 1))
    return min(1.0, float(2 * tail / 2**total))


def _fit(head: LinearHead, photos: Samples, drawn: Samples, advance: Callable[[], None]) -> LinearHead:
    """Fit with the penalty that has the smallest cross-validated loss; advance: called after each penalty."""
    folds = make_folds(photos.labels, photos.groups, FOLDS)

    def loss(penalty: float) -> float:
        logits = np.empty((len(photos.labels), len(head.bias)))
        for fold in np.unique(folds):
            fitted = fit_head(head, photos.take(np.flatnonzero(folds != fold)), drawn, penalty)
            logits[folds == fold] = fitted.logits(photos.features[folds == fold])
        advance()
        return _loss(logits, photos.labels)

    return fit_head(head, photos, drawn, min(PENALTIES, key=loss))


def _loss(logits: Array, labels: Array) -> float:
    return float(cross_entropy(logits / fit_temperature(logits, labels, ridge=0.0), labels).mean())


def _describe(part: Subset) -> str:
    low, high = part.interval
    return (f"{part.name}: {part.right} of {part.photos} held-out photos correct ({rounded(part.accuracy)} %, 95 % "
            f"interval {rounded(low)} to {100 * high:.1f} %).")  # fmt: skip


def read_head(model: ModelFile) -> LinearHead:
    name = head_node(model.graph).name
    weight = np.asarray(model.weights[f"{name}.weight"], np.float64)
    bias = np.asarray(model.weights.get(f"{name}.bias", np.zeros(len(weight))), np.float64)
    return LinearHead(weight.reshape(len(weight), -1), bias)


def _with_head(model: ModelFile, head: LinearHead) -> ModelFile:
    name, weights = head_node(model.graph).name, fold_weights(model.graph, model.weights)
    weights |= {f"{name}.weight": head.weight.astype(np.float32), f"{name}.bias": head.bias.astype(np.float32)}
    return replace(model, graph=fold_batch_norm(model.graph), weights=weights)


def _with_temperatures(model: ModelFile, held_out: Array, labels: Array) -> ModelFile:
    """Multiply the temperatures of crops with enough held-out photos by a factor fitted to their logits, but at least
    1, or `SHARPEST` with a branch: so few photos cannot show that predictions deserve a higher probability."""
    before = model.class_temperatures or (model.temperature,) * len(model.classes)
    crops = [crop_of(name) or "unnamed" for name in model.classes]
    fitted = fit_class_temperatures(held_out, labels, crops, before, model.offset, ridge=0.0)
    least = SHARPEST if is_branched(model.graph) else 1.0
    after = tuple(max(t, least * known) for t, known in zip(fitted, before, strict=False))  # none fitted: none
    return replace(model, class_temperatures=after or model.class_temperatures)


def _with_familiarity(model: ModelFile, seen: NetworkOutputs, labels: Array, folds: Array) -> ModelFile:
    """Extend the subspace of familiar features by the main directions of the place's photos outside it, and the means
    of spreads by those of its classes, and raise the threshold: the logits of its photos have a higher energy now. For
    the threshold each photo is scored by statistics of the other folds: to its own it would be too familiar."""
    found, thresholds, features = read_familiarity(model), model.thresholds, seen.features
    space = found.subspace
    assert space is not None
    assert features is not None
    assert thresholds is not None
    basis, familiar = space.basis.astype(np.float64), np.empty(len(folds))
    added = len(folds) // PER_DIMENSION

    def extend(rows: Array) -> Familiarity:
        x = features[rows] - space.center
        directions = np.linalg.svd(x - x @ basis @ basis.T, full_matrices=False)[2][:added]
        extended = PrincipalSubspace(space.center, np.c_[basis, directions.T], space.scale)
        if found.spreads is None or seen.spreads is None:
            return replace(found, subspace=extended)
        return replace(found, subspace=extended, spreads=found.spreads.with_classes(seen.spreads[rows], labels[rows]))

    for fold in np.unique(folds):
        own = folds == fold
        familiar[own] = extend(~own).measure(seen.take(own))
    least = max(thresholds.least_familiar, float(np.quantile(familiar, PLACE_REJECTED, method="lower")))
    sections = {**model.sections, SECTION: replace(thresholds, least_familiar=least).to_section()}
    return replace(model, extra={**model.extra, **extend(folds >= 0).to_arrays()}, sections=sections)
