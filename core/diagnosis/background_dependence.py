"""Measures how much a model depends on the background: the border baseline, and accuracy on changed backgrounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import cv2
import numpy as np

from core.diagnosis.metrics import wilson_interval
from core.ops.contract import Array

BLUR: Final = 15
"""Standard deviation of the Gaussian blur, in pixels of 224, that removes the background's texture."""
SECTION: Final = "reading_leaf"
HIGH_BORDER: Final = 0.5
"""Border accuracy, rescaled so that the majority class is 0 and certainty 1, above which the report has a caution."""
CLEARLY_BETTER: Final = 0.05
"""Accuracy above the border baseline, below which there is no evidence that the model uses the leaves."""
AT_CHANCE: Final = "unknown, because the accuracy is not clearly above that of always predicting the most common class"


@final
@dataclass(frozen=True, slots=True)
class BackgroundDependence:
    """Results of the background tests. All but `photos` are shares 0..1.

    photos: number of tested photos; border: accuracy of the border baseline; commonest: of always predicting the most
    frequent class; plain, blurred, swapped: of the model on unchanged, blurred and replaced backgrounds; off_leaf: mean
    share of the class activation outside the leaf.
    """

    photos: int
    border: float
    commonest: float
    plain: float
    blurred: float
    swapped: float
    off_leaf: float

    def to_section(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_section(section: Mapping[str, Any] | None) -> BackgroundDependence | None:
        """The results in a model file's section; None if there is none or it is not valid."""
        if section is None:
            return None
        try:
            shares = [float(section[name]) for name in ("border", "commonest", "plain", "blurred", "swapped",
                                                        "off_leaf")]  # fmt: skip
            photos = int(section["photos"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return BackgroundDependence(photos, *shares) if photos >= 0 and all(0 <= s <= 1 for s in shares) else None

    def sentences(self, accuracy: float | None = None) -> tuple[str, ...]:
        """The results as sentences; `accuracy`: of the model, on the photos of the border baseline."""
        drop = self.plain - self.swapped
        low, _ = wilson_interval(round(self.plain * self.photos), self.photos)
        much = AT_CHANCE if low <= self.commonest else "high" if drop > 0.1 else "moderate" if drop > 0.03 else "low"
        return (
            *describe_border(self.border, self.commonest, accuracy),
            f"With the leaf placed on the background of another photo, accuracy changes from {100 * self.plain:.1f} % "
            f"to {100 * self.swapped:.1f} %; with the background blurred, to {100 * self.blurred:.1f} % ({self.photos} "
            f"validation photos). Dependence on the background: {much}.",
            f"On average {100 * self.off_leaf:.0f} % of the class activation is outside the leaf.",
        )


def describe_border(border: float, commonest: float, accuracy: float | None = None) -> tuple[str, ...]:
    """Sentences on the border baseline and the accuracy on the same photos. Shares 0..1."""
    texts = [f"Border baseline: {100 * border:.1f} % accuracy from eight small patches along the photo border, without "
            "the leaf, classified by the nearest training photos (always predicting the most common class: "
            f"{100 * commonest:.1f} %)."]  # fmt: skip
    if accuracy is not None and accuracy - border < CLEARLY_BETTER:
        texts.append("The network is not clearly better than the border baseline: nothing shows that it uses the "
                     "leaves.")
    elif accuracy is not None:
        texts.append(f"The network is {100 * (accuracy - border):.1f} points better than the border baseline; only "
                     "this part must come from the leaves.")
    if (border - commonest) / max(1 - commonest, 1e-9) > HIGH_BORDER:
        texts.append("In these photos the background and light reveal the class, so the accuracy says little about "
                     "field photos.")
    return tuple(texts)


def blur_background(photo: Array, leaf: Array) -> Array:
    """Blur everything but the leaf, with a soft edge."""
    soft = _soft(leaf)
    far = cv2.GaussianBlur(photo, (0, 0), BLUR * photo.shape[0] / 224)
    return np.asarray(photo * soft + far * (1 - soft) + 0.5).astype(np.uint8)


def swap_background(photo: Array, leaf: Array, other: Array, other_leaf: Array) -> Array:
    """Paste the leaf on the background of another photo, whose leaf is inpainted from its surroundings."""
    soft = _soft(leaf)
    hole = cv2.dilate(other_leaf.astype(np.uint8), np.ones((5, 5), np.uint8))
    background = cv2.inpaint(other, hole, 3, cv2.INPAINT_TELEA)
    return np.asarray(photo * soft + background * (1 - soft) + 0.5).astype(np.uint8)


def measure_backgrounds(
    photos: Array, leaves: Array, labels: Array, predict: Callable[[Array], Array], seed: int = 0
) -> tuple[float, float, float]:
    """Accuracy (plain, blurred, swapped) on photos uint8 ``(N, s, s, 3)`` with masks bool ``(N, s, s)``.

    `predict` returns class indices ``(N,)``. The other background is from a random photo of another class, by seed.
    """
    rng = np.random.default_rng(seed)
    changed = np.empty_like(photos)  # one set at a time: 300 photos of 224 pixels have 45 MB

    def share_right(shown: Array) -> float:
        return float((predict(shown) == labels).mean())

    plain = share_right(photos)
    for i in range(len(photos)):
        changed[i] = blur_background(photos[i], leaves[i])
    blurred = share_right(changed)
    for i in range(len(photos)):
        others = np.flatnonzero(labels != labels[i])
        j = int(rng.choice(others)) if len(others) else i
        changed[i] = swap_background(photos[i], leaves[i], photos[j], leaves[j])
    return plain, blurred, share_right(changed)


def _soft(leaf: Array) -> Array:
    """The mask with an edge of a few pixels, float32 ``(s, s, 1)``."""
    return np.asarray(cv2.GaussianBlur(leaf.astype(np.float32), (0, 0), 1.2))[..., None]
