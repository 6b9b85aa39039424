import cv2
import numpy as np
import pytest

from core.diagnosis import background_dependence as dependence
from core.diagnosis.background_dependence import BackgroundDependence, describe_border, swap_background

SIDE = 48


def scenes(count=40, seed=0):
    """Leaves whose class is told by the background alone (odd: red paper), and their masks."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    photos = np.empty((count, SIDE, SIDE, 3), np.uint8)
    photos[:] = np.where(labels[:, None, None, None] == 1, (200, 60, 60), (60, 60, 200))
    masks = np.zeros((count, SIDE, SIDE), bool)
    masks[:, 14:34, 14:34] = True
    photos[masks] = (40, 150, 40)
    noise = rng.integers(-10, 10, photos.shape)
    return np.clip(photos + noise, 0, 255).astype(np.uint8), masks, labels


def test_an_answer_that_reads_the_background_fails_when_it_is_swapped():
    photos, masks, labels = scenes()

    def by_background(batch):
        return (batch[:, 2, 2, 0] > batch[:, 2, 2, 2]).astype(np.int64)

    plain, blurred, swapped = dependence.measure_backgrounds(photos, masks, labels, by_background)
    assert (plain, blurred, swapped) == (1.0, 1.0, 0.0)


def test_the_leaf_itself_is_left_as_it_was():
    photos, masks, _ = scenes(2)
    inner = cv2.erode(masks[0].astype(np.uint8), np.ones((9, 9))) > 0
    swapped = swap_background(photos[0], masks[0], photos[1], masks[1])
    for changed in (dependence.blur_background(photos[0], masks[0]), swapped):
        assert np.abs(changed[inner].astype(int) - photos[0][inner]).max() <= 1
    assert np.abs(swapped[:5].astype(int) - photos[1][:5]).max() <= 1


def test_the_words_follow_the_figures():
    bad = BackgroundDependence(100, 0.8, 0.1, 0.98, 0.7, 0.5, 0.4).sentences()
    good = BackgroundDependence(100, 0.2, 0.1, 0.98, 0.97, 0.97, 0.1).sentences()
    assert any("reveal the class" in s for s in bad)
    assert any("background: high" in s for s in bad)
    assert any("background: low" in s for s in good)
    assert not any("reveal the class" in s for s in good)


@pytest.mark.parametrize(("photos", "plain", "known"), [(300, 0.25, False), (20, 0.4, False), (300, 0.4, True)])
def test_at_chance_the_dependence_is_unknown(photos, plain, known):
    said = BackgroundDependence(photos, 0.2, 0.25, plain, plain, plain, 0.1).sentences()
    assert any("background: low." in s for s in said) is known
    assert any(f"background: {dependence.AT_CHANCE}." in s for s in said) is not known


def test_the_border_is_read_beside_the_accuracy():
    assert "Border baseline: 63.7 %" in describe_border(0.637, 0.112)[0]
    assert any("27.5 points better" in s for s in describe_border(0.6, 0.5, 0.875))
    assert any("nothing shows that it uses the leaves" in s for s in describe_border(0.85, 0.5, 0.875))
    assert len(describe_border(0.2, 0.1)) == 1


def test_a_section_that_makes_no_sense_is_left_out():
    good = BackgroundDependence(100, 0.2, 0.1, 0.98, 0.97, 0.97, 0.1)
    assert BackgroundDependence.from_section(good.to_section()) == good
    for bad in (None, {}, {**good.to_section(), "border": "high"}, {**good.to_section(), "swapped": 7.0},
                {**good.to_section(), "photos": -1},
                {**good.to_section(), "off_leaf": float("nan")}):
        assert BackgroundDependence.from_section(bad) is None
