"""Views of a photo that are answered together: the photo, or the photo and its mirror image.

A leaf has no left and right, so both views show the same; their mean errs less than either. It also takes back what a
network's strides shift: cells of a map lie half a cell to one side, and to the other in the mirror image's.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from core.ops.contract import Array

VIEWS: Final = (1, 2)
"""Numbers of views that there are: the photo alone, or with its mirror image (left for right)."""


def make_views(photos: Array, views: int) -> Array:
    """Photos ``(N, height, width, 3)``, each followed by its mirror image where there are two views."""
    if views == 1:
        return photos
    return np.stack((photos, photos[:, :, ::-1]), axis=1).reshape(-1, *photos.shape[1:])


def average_views(answers: Array, views: int) -> Array:
    """Answers ``(N * views, ...)`` on what `make_views` gave, averaged: ``(N, ...)``.

    Maps ``(N * views, height, width, channels)`` of mirror images are turned back first, cell onto cell.
    """
    if views == 1:
        return answers
    plain, mirrored = answers[0::2], answers[1::2]
    if answers.ndim == 4:
        mirrored = mirrored[:, :, ::-1]
    return np.asarray((plain + mirrored) / 2)
