"""Dependence on the background: the border baseline, replaced backgrounds, and the sentences about them."""

from dataclasses import asdict

import cv2
import numpy as np
import pytest

from core.data.cache import PhotoCache
from core.diagnosis import background_dependence as dependence
from core.diagnosis.background_dependence import (
    BackgroundDependence,
    border_features,
    describe_border,
    measure_baseline,
)
from core.diagnosis.metrics import Subset

SIDE = 48


def scenes(count=40):
    """Leaves whose class is told by the background alone (odd: red paper), and their masks."""
    labels = np.arange(count) % 2
    photos = np.empty((count, SIDE, SIDE, 3), np.uint8)
    photos[:] = np.where(labels[:, None, None, None] == 1, (200, 60, 60), (60, 60, 200))
    masks = np.zeros((count, SIDE, SIDE), bool)
    masks[:, 14:34, 14:34] = True
    photos[masks] = (40, 150, 40)
    noise = np.random.default_rng(0).integers(-10, 10, photos.shape)
    return np.clip(photos + noise, 0, 255).astype(np.uint8), masks, labels


def test_an_answer_that_reads_the_background_fails_when_it_is_swapped():
    photos, masks, labels = scenes()

    def by_background(batch):
        return (batch[:, 2, 2, 0] > batch[:, 2, 2, 2]) == labels

    plain, blurred, swapped = dependence.measure_backgrounds(photos, masks, labels, by_background)
    assert (plain, blurred, swapped) == (1.0, 1.0, 0.0)


def test_the_leaf_itself_is_left_as_it_was():
    photos, masks, _ = scenes(2)
    inner = cv2.erode(masks[0].astype(np.uint8), np.ones((9, 9))) > 0
    swapped = dependence.swap_background(photos[0], masks[0], photos[1], masks[1])
    for changed in (dependence.blur_background(photos[0], masks[0]), swapped):
        assert np.abs(changed[inner].astype(int) - photos[0][inner]).max() <= 1
    assert np.abs(swapped[:5].astype(int) - photos[1][:5]).max() <= 1
    stripes = np.zeros_like(photos[0])
    stripes[:, ::2] = 200
    for photo in (stripes, stripes.transpose(1, 0, 2)):
        assert np.ptp(dependence.blur_background(photo, np.zeros_like(masks[0]))[8:-8, 8:-8]) < 20


def test_the_words_follow_the_figures():
    bad = " ".join(BackgroundDependence(100, 0.8, 0.1, 0.98, 0.7, 0.5, 0.1).sentences())
    good = " ".join(BackgroundDependence(100, 0.2, 0.1, 0.98, 0.97, 0.97, 0.1).sentences())
    assert ("reveal the class" in bad, "background: high." in bad) == (True, True)
    assert ("reveal the class" in good, "background: low." in good) == (False, True)


def test_few_photos_do_not_show_that_the_dependence_is_low_or_that_a_network_beats_the_border():
    few, more = (BackgroundDependence(photos, 0.2, 0.1, 1, 1, 1, 0.1).sentences()[-1] for photos in (34, 35))
    assert (dependence.TOO_FEW in few, "background: low." in more) == (True, True), "3.84 / (34 + 3.84) are above 0.1"
    equal = np.random.default_rng(0).binomial(30, 0.6, (1000, 2)).tolist()
    better = [any("points better" in s for s in describe_border(border / 30, 0.1, Subset("", 30, right)))
              for border, right in equal]  # fmt: skip
    assert np.mean(better) < 0.035, "of networks that are as good as the border"


@pytest.mark.parametrize(("photos", "plain", "known"), [(300, 0.25, False), (20, 0.4, False), (300, 0.4, True)])
def test_at_chance_the_dependence_is_unknown(photos, plain, known):
    said = BackgroundDependence(photos, 0.2, 1 - plain, plain, plain, plain, 0.25).sentences()
    assert any("background: low." in s for s in said) is known
    assert any(f"background: {dependence.AT_CHANCE}." in s for s in said) is not known


def test_the_border_is_read_beside_the_accuracy():
    assert "Border baseline: 63.7 %" in describe_border(0.637, 0.112)[0]
    assert any("27.5 points better" in s for s in describe_border(0.6, 0.5, Subset("", 80, 70)))
    assert any("nothing shows that it uses the leaves" in s for s in describe_border(0.85, 0.5, Subset("", 8000, 7000)))
    assert any("nothing shows that it uses the leaves" in s for s in describe_border(0.6, 0.5, Subset("", 32, 22)))
    assert len(describe_border(0.2, 0.1)) == 1
    assert not any("reveal the class" in s for s in describe_border(1.0, 0.0, Subset("", 1, 1))), "of one photo"


def test_a_section_that_makes_no_sense_is_left_out():
    good = BackgroundDependence(100, 0.2, 0.1, 0.98, 0.97, 0.97, 0.1)
    assert BackgroundDependence.from_section(asdict(good)) == good
    assert BackgroundDependence.from_section({k: v for k, v in asdict(good).items() if k != "chance"}) == good
    for bad in (None, {}, {**asdict(good), "border": "high"}, {**asdict(good), "swapped": 7.0},
                {**asdict(good), "photos": -1}, {**asdict(good), "blurred": float("nan")}):
        assert BackgroundDependence.from_section(bad) is None


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
    assert abs(found.commonest - 1 / 3) < 0.02


def test_fewer_photos_than_neighbours_still_vote():
    photos = np.random.default_rng(2).integers(0, 255, (4, 12, 12, 3), np.uint8)
    labels = np.array([0, 0, 0, 1], np.int32)
    assert measure_baseline(cache_of(photos), labels, np.arange(3), np.array([3])).border == 0
