"""Is it reading the leaf? What the border alone gives away, and what a changed background does to the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

import cv2
import numpy as np

from core.ops.contract import Array

BLUR: Final = 15
"""Gaussian deviation, in pixels of 224, that leaves no texture of the background."""
SECTION: Final = "reading_leaf"
HIGH_BORDER: Final = 0.5
"""Border accuracy, as a share of the way from chance to certainty, from which the figures are read with care."""
CLEARLY_BETTER: Final = 0.05
"""Lead over the border, as a share of photos, below which nothing shows that the leaves are read."""


@final
@dataclass(frozen=True, slots=True)
class BackgroundDependence:
    """Shares 0..1: accuracy from the border alone and by the commonest class; accuracy as the photos are, with the
    background blurred and swapped; mean share of the class map off the leaf. photos: how many were looked at."""

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
        """What a model file's section tells, or None where it has none or it makes no sense."""
        if section is None:
            return None
        try:
            shares = [float(section[name]) for name in ("border", "commonest", "plain", "blurred", "swapped",
                                                        "off_leaf")]  # fmt: skip
            photos = int(section["photos"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return BackgroundDependence(photos, *shares) if all(0 <= share <= 1 for share in shares) else None

    def sentences(self, accuracy: float | None = None) -> tuple[str, ...]:
        """What it means, in words. `accuracy`: the network's, on the photos that the border was judged on."""
        drop = self.plain - self.swapped
        much = "much" if drop > 0.1 else "a little" if drop > 0.03 else "hardly"
        return (
            *describe_border(self.border, self.commonest, accuracy),
            f"With the leaf set on another photo's ground, accuracy goes from {100 * self.plain:.1f} % to "
            f"{100 * self.swapped:.1f} %; with the ground blurred, to {100 * self.blurred:.1f} % "
            f"({self.photos} validation photos). So the answers depend {much} on the background.",
            f"On average {100 * self.off_leaf:.0f} % of what speaks for an answer (the mass of the class map) lies off "
            "the leaf.",
        )


def describe_border(border: float, commonest: float, accuracy: float | None = None) -> tuple[str, ...]:
    """What the border baseline means beside the accuracy on the same photos, in words. Shares 0..1."""
    said = [f"The photo's border alone gives {100 * border:.1f} %: eight small patches along the edge, without the "
            f"leaf, named by the training photos most like them (always saying the commonest class: "
            f"{100 * commonest:.1f} %)."]  # fmt: skip
    if accuracy is not None and accuracy - border < CLEARLY_BETTER:
        said.append("The network is not clearly better: nothing shows that it looks at the leaves.")
    elif accuracy is not None:
        said.append(f"The network is {100 * (accuracy - border):.1f} points better; only that part must come from the "
                    "leaves.")
    if (border - commonest) / max(1 - commonest, 1e-9) > HIGH_BORDER:
        said.append("Paper and light give the class away in these photos; they say little about the field.")
    return tuple(said)


def blur_background(photo: Array, leaf: Array) -> Array:
    """The photo with everything but the leaf blurred; the seam is soft."""
    soft = _soft(leaf)
    far = cv2.GaussianBlur(photo, (0, 0), BLUR * photo.shape[0] / 224)
    return np.asarray(photo * soft + far * (1 - soft) + 0.5).astype(np.uint8)


def swap_background(photo: Array, leaf: Array, other: Array, other_leaf: Array) -> Array:
    """The leaf on the ground of another photo, whose own leaf is painted over from around it."""
    soft = _soft(leaf)
    hole = cv2.dilate(other_leaf.astype(np.uint8), np.ones((5, 5), np.uint8))
    ground = cv2.inpaint(other, hole, 3, cv2.INPAINT_TELEA)
    return np.asarray(photo * soft + ground * (1 - soft) + 0.5).astype(np.uint8)


def measure_backgrounds(
    photos: Array, leaves: Array, labels: Array, answer: Callable[[Array], Array], seed: int = 0
) -> tuple[float, float, float]:
    """Accuracy (plain, blurred, swapped) on photos uint8 ``(N, s, s, 3)`` with masks bool ``(N, s, s)``.

    `answer` gives class indices ``(N,)``. The swapped ground comes from a photo of another class, by seed.
    """
    rng = np.random.default_rng(seed)
    changed = np.empty_like(photos)  # one set at a time: 300 photos of 224 pixels take 45 MB

    def share_right(shown: Array) -> float:
        return float((answer(shown) == labels).mean())

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
    """The mask with a seam of a few pixels, float32 ``(s, s, 1)``."""
    return np.asarray(cv2.GaussianBlur(leaf.astype(np.float32), (0, 0), 1.2))[..., None]
