"""Rows of augmentation: pure functions of seed, epoch and photo, within the photo, and gentle enough."""

from dataclasses import replace

import numpy as np
import pytest

from core.config import settings
from core.data.augment import PRESETS, draw_augmentation
from core.ops.photo import AFFINE, AUGMENTATION_SIZE, BLUR, COLOUR, CUTOUT, identity_augmentation, transform

MEAN, STD = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
SOURCE, SIZE = 64, 48
VARIED = [name for name in PRESETS if name != "none"]


def test_the_presets_are_those_of_the_configuration():
    assert tuple(PRESETS) == settings()["augment"][1].choices


def ramp():
    photo = np.zeros((SOURCE, SOURCE, 3), np.uint8)
    photo[..., 0] = np.arange(SOURCE) * 4
    photo[..., 1] = np.arange(SOURCE)[:, None] * 4
    return photo


def test_evaluation_shows_the_whole_photo_plainly_and_so_does_no_augmentation():
    augmentation = identity_augmentation(1, SOURCE, SOURCE)
    assert augmentation.shape == (1, AUGMENTATION_SIZE)
    out = transform(ramp()[None], augmentation, (SOURCE, SOURCE), MEAN, STD)
    assert np.abs(out[0] - ramp() / 255).max() < 1e-6
    none = draw_augmentation("none", 1, 2, np.arange(4), SOURCE, SIZE)
    assert np.array_equal(none, identity_augmentation(4, SOURCE, SIZE))


@pytest.mark.parametrize("preset", VARIED)
def test_rows_depend_on_seed_epoch_photo_and_occurrence_and_on_nothing_else(preset):
    def draw(seed=1, epoch=2, photos=(5, 9, 7), times=None):
        return draw_augmentation(preset, seed, epoch, np.array(photos), SOURCE, SIZE, times)

    base = draw()
    assert base.dtype == np.float32
    assert np.array_equal(base, draw())
    assert np.array_equal(base[1:2], draw(photos=(9,)))
    for other in (draw(seed=3), draw(epoch=3), draw(photos=(15, 19, 17)), draw(times=np.array([1, 1, 1]))):
        assert (np.abs(other - base).max(1) > 1e-3).all()


@pytest.mark.parametrize("preset", VARIED)
def test_the_crop_has_an_allowed_area_and_its_centre_lies_within(preset):
    augmentation = draw_augmentation(preset, 0, 0, np.arange(2000), SOURCE, SIZE)
    a = augmentation[:, AFFINE].astype(float)
    area = np.abs(a[:, 0] * a[:, 4] - a[:, 1] * a[:, 3]) * SIZE**2 / SOURCE**2
    assert area.max() <= 1.001
    assert area.min() >= PRESETS[preset].area / PRESETS[preset].aspect
    middle = (SIZE - 1) / 2
    for x in ((a[:, 0] + a[:, 1]) * middle + a[:, 2], (a[:, 3] + a[:, 4]) * middle + a[:, 5]):
        assert x.min() > 0.2 * SOURCE
        assert x.max() < 0.8 * SOURCE


def test_without_turning_the_crop_stays_within_the_photo(monkeypatch):
    monkeypatch.setitem(PRESETS, "light", replace(PRESETS["light"], turn=0.0, area=0.3))
    a = draw_augmentation("light", 0, 0, np.arange(500), SOURCE, SIZE)[:, AFFINE].astype(float)
    for corner_x, corner_y in ((-0.5, -0.5), (SIZE - 0.5, -0.5), (-0.5, SIZE - 0.5)):
        for k in (0, 3):
            place = a[:, k] * corner_x + a[:, k + 1] * corner_y + a[:, k + 2]
            assert place.min() > -0.501
            assert place.max() < SOURCE - 0.499


@pytest.mark.parametrize("preset", VARIED)
def test_all_eight_ways_to_lay_a_leaf_come_equally_often(preset):
    a = draw_augmentation(preset, 0, 0, np.arange(4000), SOURCE, SIZE)[:, AFFINE].astype(float)
    mirrored = a[:, 0] * a[:, 4] - a[:, 1] * a[:, 3] < 0
    quarter = np.round(np.degrees(np.arctan2(-a[:, 1], a[:, 4])) / 90).astype(int) % 4
    counts = np.bincount(quarter + 4 * mirrored, minlength=8) / 4000
    assert np.abs(counts - 1 / 8).max() < 0.02


def test_colours_stay_recognisable_and_stronger_presets_change_more():
    leaf, grey, changes = np.array((0.25, 0.45, 0.15, 1.0)), np.array((0.5, 0.5, 0.5, 1.0)), []
    for preset in VARIED:
        matrices = draw_augmentation(preset, 0, 0, np.arange(2000), SOURCE, SIZE)[:, COLOUR].reshape(-1, 3, 4)
        seen = matrices @ leaf
        assert (seen[:, 1] > seen[:, 2]).mean() > 0.99, "a leaf stays greener than blue"
        assert np.abs(seen.mean(1) - leaf[:3].mean()).mean() < 0.2
        assert np.abs(matrices @ grey - 0.5).max() < 0.4
        changes.append(np.abs(seen - leaf[:3]).mean())
    assert changes == sorted(changes)
    assert changes[0] > 0.005


def test_cutout_boxes_lie_within_the_picture_and_blur_never_turns_a_pixel_negative():
    """Both come as often as the preset says."""
    augmentation = draw_augmentation("strong", 0, 0, np.arange(4000), SOURCE, SIZE)
    y0, x0, y1, x1 = augmentation[:, CUTOUT].T
    there = (y1 > y0) & (x1 > x0)
    assert abs(there.mean() - PRESETS["strong"].cutout) < 0.04
    assert min(y0.min(), x0.min()) >= 0
    assert max(y1.max(), x1.max()) <= SIZE
    assert (y1 - y0).max() <= SIZE * PRESETS["strong"].cutout_side + 1
    assert augmentation[:, BLUR].max() <= 0.2
    assert abs((augmentation[:, BLUR] > 0).mean() - PRESETS["strong"].blur) < 0.04
