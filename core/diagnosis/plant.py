"""One diagnosis of several photos of a plant.

The log probabilities of the photos are added and divided by the square root of their number. Added alone they would
count photos of one plant as independent evidence; on photos of one class drawn at random, the division keeps stated
probabilities within a point of the truth for 2, 4 and 6 photos (benchmarks/results/plants.json).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from core.data.photo_format import HEAD, taken_at
from core.diagnosis.metrics import softmax
from core.diagnosis.prediction import Diagnosis
from core.diagnosis.thresholds import NEVER, no_leaf_limit
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, ClassProbability, DecisionRule, Prediction, Verdict
from core.ops.contract import Array
from core.text import shortest_ends

FOLDER, TIME = "folder", "time"
GROUPINGS: Final = (FOLDER, TIME)
"""How photos are grouped into plants: by their folder, or by the time at which they were taken."""
PAUSE: Final = 60
"""Longest time between two photos of one plant, seconds by the camera's clock."""
SMALLEST: Final = 1e-12
NOTHING: Final[Mapping[str, str]] = MappingProxyType({
    NO_LEAF: "There seems to be no leaf in these photos.",
    NOT_SURE: "No photo of the plant is like the photos that the model was trained on.",
})  # fmt: skip
"""Reasons why a plant has no diagnosis though it has photos."""


@dataclass(frozen=True, slots=True)
class Plant:
    """The diagnosis of a plant. photos: how many it has; used: how many of them show a leaf that the model can know;
    title: the last part of the name, with as many folders as tell it from the other plants."""

    name: str
    photos: int
    used: int
    verdict: Verdict
    top: tuple[ClassProbability, ...] = ()
    title: str = ""


def name_plants(paths: Sequence[str], by: str, times: Sequence[int] = ()) -> list[str]:
    """The name of each photo's plant: its folder, or the first of the photos taken with pauses of a minute at most.

    A photo without a time is a plant of its own. times: of the photos, if they were read already.
    """
    if by == FOLDER:
        return [os.path.dirname(path) or "." for path in paths]
    times = times or [read_time(path) for path in paths]
    names = list(paths)
    dated = sorted((at for at in range(len(paths)) if times[at]), key=lambda at: times[at])
    for before, after in zip(dated, dated[1:], strict=False):
        if times[after] - times[before] <= PAUSE:
            names[after] = names[before]
    return names


def read_time(path: str) -> int:
    """When a photo was taken (`taken_at`), 0 if it has no time or cannot be read."""
    with contextlib.suppress(OSError):  # the diagnosis of the photo states why it cannot be read
        if os.path.isfile(path):  # to open a pipe could wait for ever
            with open(path, "rb") as file:
                return taken_at(np.frombuffer(file.read(HEAD), np.uint8))
    return 0


def pool_probabilities(probabilities: Array, multilabel: bool = False) -> Array:
    """Probabilities ``(classes,)`` of a plant of its photos' ``(N, classes)``; `multilabel`: label by label."""
    if multilabel:
        pairs = np.stack((1 - probabilities, probabilities), axis=-1)  # no and yes of each label
        return np.array([pool_probabilities(pairs[:, label])[1] for label in range(pairs.shape[1])])
    logs = np.log(np.maximum(probabilities, SMALLEST))
    pooled = softmax(logs.sum(axis=0, keepdims=True) / np.sqrt(len(logs)))[0]
    return np.where(probabilities.any(axis=0), pooled, 0.0)


def diagnose_plant(name: str, photos: Sequence[Prediction], rule: DecisionRule) -> Plant:
    """Pool the photos of a plant that show a leaf of a known kind; with none of these the plant has no diagnosis."""
    thresholds = rule.thresholds
    bare, most = no_leaf_limit(thresholds, rule.classes)
    leaves = [p for p in photos if bare < 0 or p.probabilities[bare] < most]
    used = [p for p in leaves if p.familiar >= (thresholds.least_familiar if thresholds else NEVER)]
    if not used:
        refused = NOT_SURE if leaves else NO_LEAF
        return Plant(name, len(photos), 0, Verdict(refused, NOTHING[refused]))
    pooled = pool_probabilities(np.stack([p.probabilities for p in used]), bool(thresholds and thresholds.labels))
    prediction = Prediction(pooled, max(p.familiar for p in used))
    return Plant(name, len(photos), len(used), rule.decide(prediction), rule.list_top(prediction))


def diagnose_plants(diagnoses: Iterable[Diagnosis], names: Sequence[str], rule: DecisionRule) -> list[Plant]:
    """One plant for each of the `names`, one name for each diagnosis; a photo counts once, an unreadable one never."""
    photos: dict[str, dict[str, Prediction]] = {}
    for diagnosis, name in zip(diagnoses, names, strict=True):
        if diagnosis.prediction is not None:
            photos.setdefault(name, {})[os.path.realpath(diagnosis.path)] = diagnosis.prediction
    plants = [diagnose_plant(name, [*found.values()], rule) for name, found in photos.items()]
    titles = shortest_ends([plant.name for plant in plants])
    return [replace(plant, title=title) for plant, title in zip(plants, titles, strict=True)]
