"""Batches: the same for the same seed and epoch, resumable at any batch, and never fewer than promised."""

import threading

import numpy as np
import pytest

from core.config import settings
from core.data.augment import draw_augmentation
from core.data.loader import Loader, epoch_order
from core.ops.photo import identity_augmentation

SIDE = 8


def make(count=50, batch=8, training=True, **more):
    photos = np.random.default_rng(0).integers(0, 255, (count + 5, SIDE, SIDE, 3), np.uint8)
    slots = np.random.default_rng(1).permutation(count + 5)[:count]
    labels = np.arange(count, dtype=np.int32) % 3
    return Loader(photos, slots, labels, batch=batch, size=SIDE, training=training, **more)


def same(a, b):
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in ("photos", "augmentation", "labels"))


def test_a_training_epoch_shows_photos_at_most_once_and_drops_what_fills_no_batch():
    loader = make(50, 8, augment="standard")
    batches = list(loader.batches(0))
    assert loader.steps == len(batches) == 6
    assert all(len(b.labels) == 8 for b in batches)
    seen = np.concatenate([b.photos.reshape(8, -1) for b in batches])
    assert len(np.unique(seen, axis=0)) == 48
    assert [len(batch.labels) for batch in make(5, 8).batches(0)] == [5], "fewer photos than a batch still make one"


def test_photos_labels_and_rows_belong_together(monkeypatch):
    monkeypatch.setattr("core.data.loader.DRAWN", 20)  # two batches at once
    loader = make(40, 8, augment="standard", seed=3)
    order = loader.order(2)
    for step, batch in enumerate(loader.batches(2)):
        chosen = order[step * 8 : step * 8 + 8]
        assert np.array_equal(batch.photos, loader.photos[loader.slots[chosen]])
        assert np.array_equal(batch.labels, loader.labels[chosen])
        assert np.array_equal(batch.augmentation, draw_augmentation("standard", 3, 2, chosen, SIDE, SIDE))
        assert (batch.photos.dtype, batch.augmentation.dtype, batch.labels.dtype) == (np.uint8, np.float32, np.int32)
        assert batch.index is None


def test_evaluation_shows_every_photo_once_in_order_and_plainly():
    loader = make(50, 8, training=False, augment="strong", sampling="balanced")
    batches = list(loader.batches(0))
    assert loader.steps == len(batches) == 7
    assert [len(b.labels) for b in batches] == [8] * 6 + [2]
    assert np.array_equal(np.concatenate([b.photos for b in batches]), loader.photos[loader.slots])
    assert np.array_equal(batches[0].augmentation, identity_augmentation(8, SIDE, SIDE))


@pytest.mark.parametrize("sampling", settings()["sampling"][1].choices)
def test_an_epoch_is_a_function_of_seed_and_number_and_goes_on_from_any_batch(sampling):
    one = list(make(augment="standard", sampling=sampling, seed=4).batches(3))
    again = list(make(augment="standard", sampling=sampling, seed=4).batches(3))
    assert all(same(a, b) for a, b in zip(one, again, strict=True))
    for first in (1, 4, 5, 6):
        rest = make(augment="standard", sampling=sampling, seed=4).batches(3, first)
        assert all(same(a, b) for a, b in zip(one[first:], rest, strict=True))
    for other in (make(sampling=sampling, seed=5).order(3), make(sampling=sampling, seed=4).order(4)):
        assert not np.array_equal(make(sampling=sampling, seed=4).order(3), other)


LABELS = np.repeat(np.arange(3), (900, 90, 10)).astype(np.int32)


@pytest.mark.parametrize(("sampling", "shares"), [
    ("natural", (0.9, 0.09, 0.01)), ("balanced", (1 / 3,) * 3), ("sqrt", (0.702, 0.222, 0.074)),
])  # fmt: skip
def test_classes_come_as_often_as_the_sampling_says_and_their_photos_in_turns(sampling, shares):
    order = epoch_order(LABELS, sampling, 0, 0)
    assert len(order) == 1000
    assert np.abs(np.bincount(LABELS[order]) / 1000 - shares).max() < 0.003
    middle = np.bincount(LABELS[order[400:600]], minlength=3) / 200
    assert np.abs(middle - shares).max() < 0.12, "the classes are mixed"
    times = np.bincount(order, minlength=1000)
    assert all(np.ptp(times[label == LABELS]) <= 1 for label in range(3)), "the photos of a class take turns"
    seen = np.concatenate([epoch_order(LABELS, sampling, 0, epoch) for epoch in range(12)])
    assert len(np.unique(seen)) > 950, "over the epochs nearly all photos come"


def test_a_photo_that_comes_again_is_varied_anew():
    loader = Loader(np.zeros((10, SIDE, SIDE, 3), np.uint8), np.arange(10), np.array([0] * 9 + [1], np.int32), batch=10,
                    size=SIDE, training=True, augment="standard", sampling="balanced")  # fmt: skip
    (batch,) = loader.batches(0)
    rare = batch.augmentation[batch.labels == 1]
    assert len(rare) == 5
    assert len(np.unique(rare, axis=0)) == 5


def test_leaving_an_epoch_early_ends_its_thread_and_waiting_is_counted():
    before, loader = threading.active_count(), make(500, 2)
    batches = loader.batches(0)
    next(batches)
    batches.close()
    assert threading.active_count() == before
    list(loader.batches(1))
    assert loader.wait_seconds > 0


def test_an_error_while_gathering_is_raised_where_batches_are_taken():
    loader = make()
    loader.slots = loader.slots[:3]
    with pytest.raises((IndexError, ValueError)):
        list(loader.batches(0))
    with pytest.raises(ValueError, match="parameters without a photo"):
        Loader(np.zeros((2, 4, 4, 3), np.uint8), [0, -1], [0, 1], batch=1, size=4, training=True)

