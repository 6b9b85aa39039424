"""Masks and backgrounds of the training photos: found once, kept by content, of leaves only."""

import tracemalloc

import numpy as np
import pytest

from core.config import RunConfig
from core.data.dataset import TRAIN, ignore
from core.data.preparation import prepare_photos
from core.diagnosis import backgrounds, leaf_process
from core.diagnosis.severity import Severity
from core.errors import DataError
from tests.helpers.tiny_photos import write_discs

SIDE = 64


@pytest.fixture
def leaves(tmp_path):
    classes = {"oak": (60, 160, 50), "ash": (120, 150, 40), "no leaf": None}
    photos = write_discs(tmp_path / "photos", classes, each=10, side=SIDE)
    return prepare_photos(RunConfig(data=str(photos), cache=str(tmp_path / "cache"), image_size=SIDE, test=0.0))


def make(photos, report=ignore):
    return backgrounds.prepare_replacement(photos, 0.5, report)


def test_leaves_are_cut_out_of_training_photos_and_painted_over_in_backgrounds(leaves):
    swap = make(leaves)
    rows = leaves.rows(TRAIN)
    slots, labels = leaves.cache.slots[rows], leaves.dataset.labels[rows]
    bare = labels == leaves.dataset.classes.index("no leaf")
    assert swap.replaceable[slots[~bare]].all()
    assert swap.replaceable.sum() == (~bare).sum()
    masks = swap.backgrounds.masks[slots[~bare]]
    assert masks.shape[1:] == (SIDE // 2, SIDE // 2)
    disc = np.hypot(*(np.mgrid[:32, :32] - 15.5)) < 6
    assert (masks[:, disc] > 250).all()
    assert (masks[:, ::31, ::31] == 0).all()
    painted = swap.backgrounds.images
    assert painted.shape == (len(rows), SIDE, SIDE, 3)
    assert np.abs(painted.astype(int) - 170).max() < 60, "a leaf was left in a background"


@pytest.mark.thorough
def test_masks_and_backgrounds_take_the_memory_that_was_foretold(leaves):
    training, side = len(leaves.rows(TRAIN)), leaves.cache.side
    kept, beside = backgrounds.count_bytes(training, len(leaves.cache.photos), side)
    make(leaves), make(leaves)  # what is imported and cached by the first computation and reading is no part of it
    tracemalloc.start()
    try:
        made = make(leaves).backgrounds
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.masks.nbytes + made.images.nbytes == kept
    assert kept + beside <= peak + 1000 <= 1.4 * (kept + beside), "more than one photo's arrays at a time"


@pytest.mark.thorough
def test_masks_are_found_once_and_a_broken_file_is_replaced(leaves, monkeypatch, tmp_path):
    first = make(leaves)
    count = []
    find = leaf_process.segment
    monkeypatch.setattr(leaf_process, "segment", lambda photo: count.append(1) or find(photo))
    again = make(leaves)
    assert not count
    assert np.array_equal(first.backgrounds.masks, again.backgrounds.masks)
    (file,) = tmp_path.glob("cache/*/*-leaves-*.npz")
    file.write_bytes(file.read_bytes()[:100])
    third = make(leaves)
    assert len(count) == len(leaves.rows(TRAIN))
    assert np.array_equal(first.backgrounds.images, third.backgrounds.images)


def test_photos_without_leaves_cannot_be_swapped(leaves, monkeypatch):
    monkeypatch.setattr(leaf_process, "segment", lambda photo: Severity(*np.zeros((2, *photo.shape[:2]), bool)))
    with pytest.raises(DataError, match="No leaf was found"):
        make(leaves)
