"""Runs whose photos are mixed: a stop changes nothing of what is learned, nor does the way of the photos."""

import numpy as np

from core.device import PhotoBatch
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, identity_augmentation, transform
from core.training.events import RunFinished
from core.training.step import with_photos
from tests.core.training.test_teacher import write_teacher
from tests.helpers.runs import last_weights, only, same_bits, train


def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(tiny, tmp_path):
    more = {"mix": 0.6, "teacher": (write_teacher(tmp_path / "t.safetensors"),)}
    whole, parted = tiny("whole", **more), tiny("parted", **more)
    train(whole)
    train(parted, stop_after=2)
    assert only(train(parted, resume=True), RunFinished)[0].reason == "completed"
    same_bits(last_weights(whole), last_weights(parted))


def test_mixed_photos_are_looked_at_anew_by_their_place_in_the_batch():
    photos = np.random.default_rng(2).integers(0, 256, (9, 8, 8, 3), np.uint8)
    rows = identity_augmentation(3, (8, 8), (8, 8))
    rows[0, BACKGROUND], rows[2, BACKGROUND] = -1 - 7, -1 - 4
    rows[:, BACKGROUND_AFFINE] = (1, 0, 0, 0, 1, 0)
    batch = PhotoBatch(None, rows, np.zeros(3, np.int32), np.array([4, 2, 7], np.int32))
    plain = ((0.0,) * 3, (1.0,) * 3)
    carried = with_photos(batch, photos)
    want = transform(photos, rows, (8, 8), *plain, index=batch.index)
    np.testing.assert_array_equal(transform(carried.photos, carried.augmentation, (8, 8), *plain), want)
    assert with_photos(carried, photos) is carried
