"""Quality checks of a dataset: unusable, duplicate, small, blurred or badly exposed photos, and class imbalance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from core.data.array_file import MappedPages
from core.data.cache import PhotoCache
from core.data.dataset import Dataset, ReportProgress, ignore
from core.data.near_duplicates import Pair, find_near_duplicates
from core.data.photo import halve, square
from core.ops.contract import Array

TINY: Final = 96
"""Photos with a shorter side, in pixels, are tiny: lesions of 2 mm on a leaf of 10 cm have less than two pixels."""
SHARP: Final = 0.015
"""Smallest sharpness (see `sharpness`). Of 3,000 leaf photos 0.2 % are below; of the same photos blurred by 2 pixels
(of 224) 75 %, by 3 pixels all."""
ROUNDING: Final = 20 / 12
"""Variance of the Laplacian caused by rounding to integer grey levels (weights 4 and four times 1)."""
BRIGHT: Final = 0.35
LIGHTEST: Final = 0.05
"""A photo with a smaller share of pixels of this brightness (0..1) is dark: one in a thousand leaf photos."""
SIDE: Final = 160
"""Side in pixels at which sharpness is measured."""
GLARE: Final = 0.5
"""A photo with a larger share of pure white is overexposed."""
LOPSIDED: Final = 10
"""Ratio of the largest to the smallest class from which the classes are imbalanced."""

KINDS: Final = {
    "unreadable": "cannot be used",
    "two_labels": "duplicates with different labels",
    "copies": "duplicates",
    "tiny": "very small",
    "blurred": "out of focus",
    "dark": "too dark",
    "glare": "overexposed",
    "lopsided": "imbalanced classes",
}
"""Kinds of findings, worst first, and their meaning."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem. kind: a key of KINDS; paths: the photos (or classes) concerned; message: a sentence."""

    kind: str
    paths: tuple[str, ...]
    message: str


def examine(dataset: Dataset, cache: PhotoCache, progress: ReportProgress = ignore) -> list[Finding]:
    """The findings on all photos of a decoded dataset, the worst first."""
    kept = cache.kept
    found = [Finding("unreadable", (s.path,), s.reason) for s in cache.skipped]
    found += [_copies(dataset, cache, pair) for pair in find_near_duplicates(cache, progress)]
    pages = MappedPages(cache.photos)
    for at, row in enumerate(kept.tolist()):
        pages.check()
        pages.read(3 * cache.side**2)
        if at % 512 == 0:
            progress(at, len(kept))
        width, height, _ = cache.facts[row].tolist()
        found += find_faults(dataset.paths[row], cache.photos[cache.slots[row]], width, height)
    found += _balance(dataset.counts(kept))
    order = list(KINDS)
    return sorted(found, key=lambda f: order.index(f.kind))


def _copies(dataset: Dataset, cache: PhotoCache, pair: Pair) -> Finding:
    first, second = pair.first, pair.second
    paths = (dataset.paths[first], dataset.paths[second])
    same = "the same file" if np.array_equal(*cache.content[[first, second]]) else "the same picture"
    if dataset.labels[first] == dataset.labels[second]:
        return Finding("copies", paths, f"Both are {same}; they stay in the same split.")
    return Finding("two_labels", paths, f"Both are {same}, but labelled {dataset.label(first)} and "
                                        f"{dataset.label(second)}. Correct the label, or remove both.")  # fmt: skip


def find_faults(path: str, rgb: Array, width: int, height: int) -> list[Finding]:
    """The findings on a photo, the worst first. rgb: its centred square; width, height: its own size."""
    found = []
    if min(width, height) < TINY:
        found.append(Finding("tiny", (path,), "The photo is too small to show lesions: its shorter side has "
                                              f"{min(width, height)} of {TINY} pixels that are needed."))
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    if np.mean(grey > 255 * BRIGHT) < LIGHTEST:
        found.append(Finding("dark", (path,), "The photo is too dark. Take it again in better light."))
    elif sharpness(grey) < SHARP:
        found.append(Finding("blurred", (path,), "The photo is out of focus. Take it again from further away."))
    if np.mean(grey > 250) > GLARE:
        found.append(Finding("glare", (path,), "Most of the photo is pure white. Take it again with less light."))
    return found


def photo_faults(rgb: Array) -> tuple[str, ...]:
    """The worst finding that makes the diagnosis of a photo uint8 RGB ``(height, width, 3)`` unreliable, as a sentence.

    Of 2,637 validation photos 7 get a sentence, one of them as out of focus; blurred by 3 pixels of 224 all but 6.
    """
    found = find_faults("", square(halve(rgb, SIDE), SIDE), rgb.shape[1], rgb.shape[0])
    return tuple(finding.message for finding in found if finding.kind != "glare")[:1]


def sharpness(grey: Array) -> float:
    """Variance of the Laplacian divided by the variance of a grey photo uint8 ``(H, W)``, at SIDE pixels."""
    if len(grey) > SIDE:
        grey = cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    edges = float(cv2.Laplacian(grey, cv2.CV_32F).var()) - ROUNDING
    return max(edges, 0.0) / (float(grey.astype(np.float32).var()) + 25)


def _balance(counts: dict[str, int]) -> list[Finding]:
    least, most = min(counts, key=lambda c: counts[c]), max(counts, key=lambda c: counts[c])
    if counts[most] < LOPSIDED * max(counts[least], 1):
        return []
    return [Finding("lopsided", (least, most), f"There are {counts[most]} photos of {most} and {counts[least]} of "
                    f"{least}. Add photos of the rare class, or train with balanced sampling.")]  # fmt: skip
