"""Temperatures by crop: labels of one crop are noisier, or its diseases more alike, than another's, and one temperature
states too much for the first and too little for the second.

Source: Gupta and Ramdas, "Top-label calibration and multiclass-to-binary reductions", ICLR 2022: calibration is by the
class that is answered. Why by crop and not by class: docs/adr/0026-temperatures-by-crop.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from core.diagnosis.calibration import find_least, fit_temperature
from core.diagnosis.crop import crop_of
from core.diagnosis.metrics import cross_entropy
from core.diagnosis.model_file import ModelFile
from core.ops.contract import Array

RIDGE: Final = 3.0
"""Weight of ``(ln f)^2`` beside the summed cross entropy, in nats: so much photos must pay for a factor. 1 to 30 are
alike on validation photos (docs/diagnosis.md)."""
FEWEST: Final = 10
"""Photos answered with a crop's classes below which the common temperature stays."""
FARTHEST: Final = 1.5
"""Largest ``|ln f|``: the common temperature times 0.22 to 4.5."""
NOTABLE: Final = 1.1
"""From this factor, or from one over it, a crop is named in words."""


def fit_temperatures(logits: Array, labels: Array, classes: Sequence[str]) -> tuple[float, tuple[float, ...]]:
    """The common temperature of a model's classes, by name, and that of each class, empty where the common one is all.

    logits ``(N, classes)``, labels ``(N,)`` of photos that it did not learn from.
    """
    common = fit_temperature(logits, labels)
    return common, fit_class_temperatures(logits, labels, [crop_of(name) for name in classes], common)


def fit_class_temperatures(
    logits: Array, labels: Array, groups: Sequence[str], temperature: float, ridge: float = RIDGE
) -> tuple[float, ...]:
    """A temperature for each class: `temperature` times the factor of its group.

    logits ``(N, classes)``, labels ``(N,)``; groups: a name for each class, its crop, empty for none. A group's factor
    has the least sum of cross entropies over the photos answered with its classes, plus ``ridge * (ln f)^2``. Empty,
    which is the common temperature for all, where there are no two groups to tell apart or none has photos enough.
    """
    names = sorted({name for name in groups if name})
    answered = np.asarray(groups, np.str_)[logits.argmax(axis=1)] if len(logits) else np.empty(0, np.str_)
    enough = [name for name in names if (answered == name).sum() >= FEWEST]
    if len(names) < 2 or not enough:
        return ()
    z = logits.astype(np.float64) / temperature
    factors = {name: _fit_factor(z[answered == name], labels[answered == name], ridge) for name in enough}
    return tuple(temperature * factors.get(name, 1.0) for name in groups)


def _fit_factor(logits: Array, labels: Array, ridge: float) -> float:
    def loss(log_f: float) -> float:
        return float(cross_entropy(logits / np.exp(log_f), labels).sum()) + ridge * log_f**2

    return float(np.exp(find_least(loss, -FARTHEST, FARTHEST)))


def describe_temperatures(model: ModelFile) -> str:
    """Of which crops a model is less sure than by one temperature, and of which surer, and why, in words.

    Empty where it has one temperature only.
    """
    if not model.class_temperatures:
        return ""
    crops = {crop_of(name): t for name, t in zip(model.classes, model.class_temperatures, strict=True)}
    less = [f"{crop} ({t:.3f})" for crop, t in crops.items() if t >= NOTABLE * model.temperature]
    more = [f"{crop} ({t:.3f})" for crop, t in crops.items() if t <= model.temperature / NOTABLE]
    sentences = ["Each crop has a temperature of its own instead, measured on the validation photos predicted as its "
            "classes."]
    if less:
        sentences.append(f"This lowers the confidence of predictions about {', '.join(less)}.")  # fmt: skip
    if more:
        sentences.append(f"It raises the confidence of predictions about {', '.join(more)}.")
    return " ".join(sentences)
