"""Photos of green squares, which are leaves to the program, and of noise."""

import numpy as np

from core.diagnosis.completion import LabelledPhotos

SIDE = 64


def squares(count, seed):
    """Green leaves on grey and on blue paper (classes 0 and 2), and noise without a leaf (class 1)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    photos = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for i, label in enumerate(labels):
        photos[i] = ((150, 150, 150), (90, 90, 200), (90, 90, 200))[label]
        if label != 1:
            y, x = rng.integers(12, 20, 2)
            photos[i, y : y + 32, x : x + 32] = (60, 140, 50)
    noisy = photos + rng.integers(-12, 12, photos.shape)
    return LabelledPhotos(np.clip(noisy, 0, 255).astype(np.uint8), labels)
