"""The border's nearest neighbours: right where the border tells, chance where it does not, and as published."""

import os
from pathlib import Path

import numpy as np
import pytest

from core.config import RunConfig
from core.data.baseline import border_features, measure_baseline
from core.data.cache import PhotoCache
from core.data.preparation import prepare_photos


def cache_of(photos):
    count = len(photos)
    nothing = np.zeros((count, 32), np.uint8)
    return PhotoCache("", photos, np.arange(count), nothing, np.zeros((count, 3), np.int64), ())


def test_features_are_mean_and_deviation_of_eight_patches():
    photo = np.random.default_rng(0).integers(0, 255, (1, 48, 48, 3), np.uint8)
    features = border_features(photo, np.array([0])).reshape(8, 2, 3)
    patch = photo[0, :4, 22:26].reshape(-1, 3)
    assert np.abs(features[1] - (patch.mean(0), patch.std(0))).max() < 1e-3
    changed = photo.copy()
    changed[0, 10:38, 10:38] = 0
    assert np.array_equal(border_features(changed, np.array([0])).reshape(8, 2, 3), features)


@pytest.mark.parametrize(("tells", "low", "high"), [(True, 0.95, 1.0), (False, 0.2, 0.5)])
def test_only_a_border_that_differs_by_class_is_read(tells, low, high):
    random = np.random.default_rng(1)
    labels = np.arange(300, dtype=np.int32) % 3
    photos = random.integers(0, 120, (300, 24, 24, 3), np.uint8)
    photos[:, 8:16, 8:16] += (40 * labels).astype(np.uint8)[:, None, None, None]
    if tells:
        photos[:, :2] += (40 * labels).astype(np.uint8)[:, None, None, None]
    found = measure_baseline(cache_of(photos), labels, np.arange(200), np.arange(200, 300))
    assert low <= found.border <= high
    assert low <= found.border_by_class <= high
    assert found.photos == 100
    assert abs(found.majority - 1 / 3) < 0.02


def test_fewer_photos_than_neighbours_still_vote():
    photos = np.random.default_rng(2).integers(0, 255, (4, 12, 12, 3), np.uint8)
    labels = np.array([0, 0, 0, 1], np.int32)
    assert measure_baseline(cache_of(photos), labels, np.arange(3), np.array([3])).border == 0


DATA = os.environ.get("LEAFCLINIC_DATA", "")


@pytest.mark.skipif(not DATA, reason="LEAFCLINIC_DATA is not set: the leaf photos are not here")
@pytest.mark.parametrize(
    ("crop", "validation", "test", "by_class"), [("rice", 0.677, 0.484, 0.474), ("citrus", 0.575, 0.575, 0.476)]
)
def test_the_published_figures_come_out(tmp_path, crop, validation, test, by_class):
    manifest = Path(DATA) / "leaves" / "manifest.csv"
    config = RunConfig(data=str(manifest), where=(f"crop={crop}",), cache=str(tmp_path))
    photos = prepare_photos(config)
    labels = photos.dataset.labels
    on_validation = measure_baseline(photos.cache, labels, photos.rows(0), photos.rows(1))
    on_test = measure_baseline(photos.cache, labels, photos.rows(0), photos.rows(2))
    assert round(on_validation.border, 3) == validation
    assert (round(on_test.border, 3), round(on_test.border_by_class, 3)) == (test, by_class)


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="LEAFCLINIC_DATA is not set: the leaf photos are not here")
def test_the_published_figures_of_tomato_come_out(tmp_path):
    manifest = Path(DATA) / "leaves" / "manifest.csv"
    photos = prepare_photos(RunConfig(data=str(manifest), where=("crop=tomato",), cache=str(tmp_path)))
    found = measure_baseline(photos.cache, photos.dataset.labels, photos.rows(0), photos.rows(2))
    assert (round(found.border, 3), round(found.border_by_class, 3)) == (0.637, 0.618)
    assert round(found.majority, 3) == 0.112
