"""What a loss with targets must give: the mix of what the same plan gives for labels, whatever it rounds on the way.

A gradient is linear in its targets where the forward walk is the same, and one target is a label. So a network that is
taught, in mixed precision too, is held against plans of labels alone in its own arithmetic.
"""

from dataclasses import replace

import numpy as np

from core.data.augment import draw_augmentation
from core.device import PhotoBatch
from tests.helpers.gpu_network import relative

CLASSES, SIDE = 5, 64
WEIGHTS = (0.2, 3.0, 1.0, 0.0, 2.0)
SHARES = (0.5, 0.3, 0.2)
OTHERS = (0, 2, 1, 3, 4), (4, 0, 2, 2, 1)
"""Labels that five photos might have had; their own, these and these are mixed by SHARES."""
NEAR = 0.03
"""Largest distance of any parameter from the mix: in bf16's rounding 0.014 at most (five photos, two networks)."""
FAR = 0.1
"""What wrong targets move it by: 0.105 with shares of 0.6, 0.2, 0.2, two photos' swapped 0.36 at least."""


def taught_batch(count, taught=True):
    draw = np.random.default_rng(2)
    photos = draw.integers(0, 256, (count, SIDE + 6, SIDE + 6, 3), dtype=np.uint8)
    augmentation = draw_augmentation("strong", 3, 0, np.arange(count), SIDE + 6, SIDE, np.zeros(count, np.int64))
    labels = draw.integers(0, CLASSES, count).astype(np.int32)
    targets = draw.dirichlet(np.ones(CLASSES), count).astype(np.float32)
    return PhotoBatch(photos, augmentation, labels, targets=targets if taught else None)


def distances_from_mix(labelled, taught, weights):
    """Largest distance of a parameter's gradient from the mix: with its targets, and with those of two photos swapped.

    labelled, taught: functions of a batch that give (loss, gradients) of the same network at the same weights.
    weights: class weights, or none; each mean is over the weights of its labels, so the parts count by them.
    """
    batch = taught_batch(5, taught=False)
    said = [np.array(labels, np.int32) for labels in (batch.labels, *OTHERS)]
    counted = np.array(weights or (1.0,) * CLASSES)
    factors = [share * counted[labels].sum() / counted[said[0]].sum() for share,
               labels in zip(SHARES, said, strict=True)]  # fmt: skip
    parts = [labelled(replace(batch, labels=labels)) for labels in said]
    targets = sum(share * np.eye(CLASSES)[labels] for share, labels in zip(SHARES, said, strict=True))
    targets = np.asarray(targets, np.float32)
    loss, gradients = taught(replace(batch, targets=targets))
    _, others = taught(replace(batch, targets=targets[[1, 0, 2, 3, 4]]))
    np.testing.assert_allclose(loss, sum(f * part for f, (part, _) in zip(factors, parts, strict=True)), rtol=1e-4)
    far, wrong = [], []
    for name in gradients:
        wanted = sum(f * part[name] for f, (_, part) in zip(factors, parts, strict=True))
        far.append(relative(gradients[name], wanted))
        wrong.append(relative(others[name], wanted))
    return max(far), max(wrong)
