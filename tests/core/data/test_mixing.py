"""Mixed photos: what a photo teaches is what is to be seen of each, however batches are cut or photos travel."""

import numpy as np
import pytest

from core.data.label_sets import target_table
from core.data.loader import Loader
from core.data.mixing import Mixing, pair_up
from core.ops.photo import BACKGROUND, CUTOUT, MASK, identity_augmentation, transform

SIDE, COUNT, CLASSES = 20, 64, 5
PLAIN = ((0.0,) * 3, (1.0,) * 3)


def loader(batch=16, part=16, resident=False, chance=0.5, smoothing=0.1, augment="standard"):
    photos = np.random.default_rng(0).integers(0, 256, (COUNT + 9, SIDE, SIDE, 3), np.uint8)
    slots = np.random.default_rng(1).permutation(COUNT + 9)[:COUNT]
    return Loader(photos, slots, np.arange(COUNT) % CLASSES, batch=batch, size=SIDE, training=True, augment=augment,
                  resident=resident, mixing=Mixing(chance, part, target_table(CLASSES, smoothing), augment))


def seen(batch, photos):
    whole = photos if batch.photos is None else batch.photos
    return transform(whole, batch.augmentation, (SIDE, SIDE), *PLAIN, index=batch.index)


def test_neighbours_are_pairs_within_each_part():
    assert pair_up(11, 4).tolist() == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, -1]
    assert pair_up(6, 3).tolist() == [1, 0, -1, 4, 3, -1]
    assert pair_up(3, 1).tolist() == [-1, -1, -1]


def test_what_is_taught_of_each_label_is_the_share_of_the_picture_that_its_photo_has():
    photos, count = np.zeros((600, SIDE, SIDE, 3), np.uint8), 600
    photos[::2] = 255  # of each pair one is white: the mean of a picture is the white one's share
    augmentation = identity_augmentation(count, SIDE, SIDE)
    labels, order = np.arange(count) % 2, np.arange(count)
    mixing = Mixing(0.7, count, np.eye(2), "none")
    targets = mixing.draw(augmentation, order, labels, (3, 1), order, np.zeros(count, int), SIDE, SIDE)
    white = transform(photos, augmentation, (SIDE, SIDE), *PLAIN).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(targets[:, 0], white, atol=1e-5)
    mixed = augmentation[:, BACKGROUND] < 0
    assert 0.65 < mixed.mean() < 0.75
    boxes = augmentation[mixed][:, CUTOUT].any(axis=1)
    assert 0.4 < boxes.mean() < 0.6
    assert np.std(augmentation[mixed][~boxes, MASK]) > 0.15


def test_targets_are_probabilities_and_photos_that_are_not_mixed_teach_their_smoothed_label():
    mixed = loader()
    for batch in mixed.batches(2):
        np.testing.assert_allclose(batch.targets.sum(axis=1), 1, rtol=1e-6)
        plain = batch.augmentation[:, BACKGROUND] == 0
        assert plain.any()
        assert not plain.all()
        np.testing.assert_allclose(batch.targets[plain], target_table(CLASSES, 0.1)[batch.labels[plain]], rtol=1e-6)


def test_photos_that_lie_on_the_device_are_mixed_like_those_that_travel():
    streamed, resident = loader(), loader(resident=True)
    for one, other in zip(streamed.batches(1), resident.batches(1), strict=True):
        assert (other.photos, other.index.dtype) == (None, np.int32)
        np.testing.assert_array_equal(seen(one, None), seen(other, resident.photos))
        np.testing.assert_array_equal(one.targets, other.targets)


@pytest.mark.parametrize(("batch", "part"), [(16, 8), (32, 32), (8, 2)])
def test_pictures_do_not_depend_on_how_an_epoch_is_cut(batch, part):
    whole, cut = loader(resident=True), loader(batch, part, resident=True)
    for name in ("augmentation", "targets"):
        one, other = (np.concatenate([getattr(b, name) for b in made.batches(4)]) for made in (whole, cut))
        np.testing.assert_array_equal(one, other)


def test_photos_that_travel_are_counted_within_their_part():
    cut = loader(16, 8)
    for batch in cut.batches(0):
        asked = -1 - batch.augmentation[batch.augmentation[:, BACKGROUND] < 0][:, BACKGROUND]
        assert asked.max() < 8
        for first in (0, 8):
            part = slice(first, first + 8)
            alone = transform(batch.photos[part], batch.augmentation[part], (SIDE, SIDE), *PLAIN)
            augmentation = batch.augmentation[part].copy()
            augmentation[augmentation[:, BACKGROUND] < 0, BACKGROUND] -= first
            np.testing.assert_array_equal(
                alone, transform(batch.photos, augmentation, (SIDE, SIDE), *PLAIN, index=np.arange(first, first + 8)))


def test_judged_photos_are_never_mixed_and_without_mixing_there_are_no_targets():
    made = loader()
    plain = Loader(made.photos, made.slots, made.labels, batch=16, size=SIDE, training=True)
    assert all(batch.targets is None for batch in plain.batches(0))
    judged = Loader(made.photos, made.slots, made.labels, batch=16, size=SIDE, training=False, mixing=made.mixing)
    assert all(batch.targets is None and not batch.augmentation[:, BACKGROUND].any() for batch in judged.batches(0))
