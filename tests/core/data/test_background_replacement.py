"""Draws of other backgrounds depend on seed, epoch and photo alone, and only on photos with a leaf."""

import numpy as np

from core.data.loader import Loader
from core.data.mixing import BackgroundReplacement
from core.ops.photo import AFFINE, BACKGROUND, BACKGROUND_AFFINE, MASK, Backgrounds, identity_augmentation

SIDE, COUNT = 32, 2000


def swap(chance=0.3, count=COUNT):
    can = np.arange(count) % 4 != 0
    return BackgroundReplacement(Backgrounds(np.zeros((count, 4, 4), np.uint8), np.zeros((7, SIDE, SIDE, 3), np.uint8)),
                                 can, chance)  # fmt: skip


def draw(photos, key=(1, 2), times=None, **options):
    augmentation = identity_augmentation(len(photos), SIDE, SIDE)
    slots = COUNT - 1 - photos
    swap(**options).draw(augmentation, slots, key, photos, np.zeros(len(photos), int) if times is None else times, SIDE)
    return augmentation


def test_as_many_photos_as_asked_get_a_background_and_none_without_a_leaf():
    photos = np.arange(COUNT)
    augmentation = draw(photos)
    can = (COUNT - 1 - photos) % 4 != 0
    assert not augmentation[~can, BACKGROUND].any()
    assert abs((augmentation[can, BACKGROUND] > 0).mean() - 0.3) < 0.04
    assert set(augmentation[:, BACKGROUND]) == set(range(8))
    chosen = augmentation[:, BACKGROUND] > 0
    assert np.array_equal(augmentation[chosen, MASK], (COUNT - 1 - photos)[chosen])
    assert np.array_equal(augmentation[:, AFFINE], identity_augmentation(COUNT, SIDE, SIDE)[:, AFFINE])


def test_backgrounds_depend_on_seed_epoch_photo_and_occurrence_and_on_nothing_else():
    photos = np.array([5, 9, 7, 14])
    base = draw(photos, chance=1.0)
    assert np.array_equal(base, draw(photos, chance=1.0))
    assert np.array_equal(base[1:2], draw(photos[1:2], chance=1.0))
    for other in (
        draw(photos, (3, 2), chance=1.0), draw(photos, (1, 3), chance=1.0),
        draw(photos, times=np.ones(4, int), chance=1.0),
    ):  # fmt: skip
        chosen = base[:, BACKGROUND] > 0
        assert (np.abs(other - base)[chosen][:, BACKGROUND_AFFINE].max(1) > 1e-3).all()


def test_a_background_is_seen_within_its_photo():
    augmentation = draw(np.arange(COUNT), chance=1.0)
    augmentation = augmentation[augmentation[:, BACKGROUND] > 0]
    a = augmentation[:, BACKGROUND_AFFINE].astype(float)
    area = np.abs(a[:, 0] * a[:, 4] - a[:, 1] * a[:, 3])
    assert 0.2 < area.min() < area.max() <= 1.001


def test_the_loader_sets_training_leaves_on_backgrounds_and_no_others():
    photos = np.zeros((40, SIDE, SIDE, 3), np.uint8)
    for training in (True, False):
        loader = Loader(photos, np.arange(40), np.zeros(40, int), batch=40, size=SIDE, training=training,
                        augment="none", replacement=swap(1.0, 40))  # fmt: skip
        (batch,) = loader.batches(0)
        assert (batch.augmentation[:, BACKGROUND] > 0).sum() == (30 if training else 0)
