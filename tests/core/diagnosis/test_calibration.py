"""Calibration: temperatures, of all classes and by crop, offset, and reliability."""

import numpy as np
import pytest

from benchmarks.model_card import render_card
from core.diagnosis import calibration
from core.diagnosis.metrics import binary_cross_entropy, cross_entropy, softmax
from tests.helpers.models import small_model


def drawn(temperature, photos=20000, classes=6, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (photos, classes))
    scaled = logits / temperature
    scaled[np.arange(photos), logits.argmax(axis=1)] -= offset
    p = softmax(scaled)
    labels = (p.cumsum(1) > rng.random((photos, 1))).argmax(1)
    return logits, labels


def test_no_neighbouring_temperature_has_a_smaller_loss_and_without_photos_it_is_one():
    logits, labels = drawn(1.7, photos=500)
    for entropy, truth, ridge in ((cross_entropy, labels, 0.0), (binary_cross_entropy, np.eye(6)[labels] > 0, 900.0)):
        best = calibration.fit_temperature(logits, truth, ridge)
        loss = {t: entropy(logits / t, truth).sum() * truth[0].size + ridge * (1 / t - 1) ** 2
                for t in (best / 1.01, best, best * 1.01)}  # fmt: skip
        assert min(loss, key=loss.get) == best
    assert calibration.fit_temperature(np.empty((0, 3)), np.empty(0, np.int64)) == 1.0
    assert calibration.fit_temperature(4 * np.eye(6)[labels[:36]], labels[:36]) > 0.4  # not 0: all 36 are correct
    at_bound = calibration.fit_scale(40 * logits, labels, (20.0, 0.0), (calibration.FIXED, 1.0))
    assert calibration.fit_scale(40 * logits, labels) == pytest.approx(at_bound), "the best offset at the largest T"


@pytest.mark.parametrize(("temperature", "offset"), [(1.0, 0.0), (0.5, 1.0), (2.5, 0.3), (0.06, 0.5), (15.0, -0.2)])
def test_temperature_and_offset_that_drew_the_labels_are_found(temperature, offset):
    logits, labels = drawn(1.0, offset=offset)
    logits = logits * temperature
    found = np.array(calibration.fit_scale(logits, labels, ridge=(0.0, 0.0)))
    assert found[0] == pytest.approx(temperature, rel=0.06)
    assert found[1] == pytest.approx(offset, abs=0.12)
    held = calibration.fit_scale(logits, labels, (0.7 * temperature, 0.4), (1e9, 1e9))
    assert held == pytest.approx((0.7 * temperature, 0.4), rel=1e-3)


def test_the_offset_lowers_the_log_odds_of_the_prediction_and_keeps_the_rest_and_the_order():
    logits = np.random.default_rng(0).normal(0, 3, (200, 5))
    logits[0] = 1.0  # all alike
    logits[1, :2] = logits[1].max() + 1e-9, logits[1].max()
    before, after = (softmax(calibration.scale_logits(logits, 0.8, (), offset)) for offset in (0.0, 0.7))
    assert np.array_equal(before.argmax(axis=1), after.argmax(axis=1))
    assert np.array_equal(*(np.argsort(x, axis=1, kind="stable")[2:] for x in (logits, after)))
    stated, reduced = before.max(axis=1), after.max(axis=1)
    free = np.sort(logits, axis=1)
    free = (free[:, -1] - free[:, -2]) / 0.8 > 0.7001
    odds = np.log(stated / (1 - stated)) - np.log(reduced / (1 - reduced))
    assert odds[free] == pytest.approx(0.7)
    assert free.sum() > 100
    assert (reduced[~free] < stated[~free]).sum() >= (~free).sum() - 2
    assert np.array_equal(calibration.scale_logits(np.ones((3, 1)), 2.0, (), 0.7), np.full((3, 1), 0.5)), "one class"


def test_scaling_takes_the_calibration_error_away_and_a_hand_made_case_has_its_error():
    logits, labels = drawn(2.5)
    before = calibration.measure_reliability(softmax(logits), labels)
    after = calibration.measure_reliability(softmax(logits / calibration.fit_temperature(logits, labels)), labels)
    assert before.error > 0.1
    assert after.error < 0.015
    # stated 0.8 of which half are right, twice: |0.8 - 0.5|
    got = calibration.measure_reliability(np.array([[0.8, 0.2]] * 4), np.array([0, 0, 1, 1]))
    assert got.error == pytest.approx(0.3)
    labels = np.array([[True, True, False]] * 2 + [[False] * 3] * 2)
    each = calibration.measure_reliability(np.array([[0.8, 0.2, 0.01]] * 4), labels)
    assert (each.error, each.bins) == (got.error, got.bins), "of the labels that are named"
    assert calibration.measure_reliability(np.full((4, 3), 0.2), labels).bins == ()
    assert [(b.photos, round(b.stated, 6), b.right) for b in got.bins] == [(4, 0.8, 0.5)]
    ends = calibration.measure_reliability(np.array([[1.0, 0.0], [0.5, 0.5], [0.02, 0.02]]), np.zeros(3, int))
    assert [(b.photos, b.stated, b.right) for b in ends.bins] == [(1, 0.02, 1), (1, 0.5, 1), (1, 1, 1)]


@pytest.mark.parametrize(("least", "leaves", "photos"), [(0.998, 30, 1), (0.5, 300, 1), (0.9, 60, 5), (0.5, 60, 5)])
def test_the_error_by_chance_is_the_mean_error_of_outcomes_drawn_from_the_probabilities(least, leaves, photos):
    rng = np.random.default_rng(0)
    stated, groups = rng.uniform(least, 1, leaves).repeat(photos), np.arange(leaves).repeat(photos)
    found = [calibration.measure_reliability(
        np.stack((stated, 1 - stated), axis=1), (rng.random(leaves).repeat(photos) > stated).astype(int), groups
    ) for _ in range(600)]  # fmt: skip
    assert np.mean([one.chance for one in found]) == pytest.approx(np.mean([one.error for one in found]), rel=0.1)


CLASSES = ("chilli/healthy", "chilli/whitefly", "tomato/healthy", "tomato/mosaic")
CROPS = tuple(map(calibration.crop_of, CLASSES))


@pytest.mark.parametrize(("name", "crop"), [
    ("tomato/late_blight", "tomato"), ("Tomato___Late_blight", "Tomato"), ("Corn_(maize)___rust_", "Corn_(maize)"),
    ("black gram/leaf/spot", "black gram"), ("healthy", ""), ("late_blight", ""), ("/healthy", ""), ("", ""),
])  # fmt: skip
def test_the_crop_is_the_first_part_of_a_name(name, crop):
    assert calibration.crop_of(name) == crop


def draw_crops(photos, factor, seed=0):
    """Logits of two crops that are never confused; labels are drawn from their softmax, chilli's over the factor."""
    rng = np.random.default_rng(seed)
    chilli = np.arange(sum(photos)) < photos[0]
    logits = np.full((len(chilli), 4), -40.0)
    logits[chilli, :2], logits[~chilli, 2:] = (rng.normal(0, 3, (count, 2)) for count in photos)
    p = softmax(logits / np.where(chilli, factor, 1.0)[:, None])
    return logits, (p.cumsum(axis=1) > rng.random((len(p), 1))).argmax(axis=1)


def fit_crops(logits, labels, crops=CROPS, start=1.0, **how):
    return calibration.fit_class_temperatures(logits, labels, crops, (start,) * 4, 0.0, **how)


def test_the_crop_with_noisy_labels_gets_the_higher_temperature():
    logits, labels = draw_crops((2000, 2000), 3.0)
    common = calibration.fit_temperature(logits, labels)
    found = calibration.fit_class_temperatures(logits, labels, CROPS, (common,) * 4, 0.0)
    assert found[0] == found[1] == pytest.approx(3.0, rel=0.15)
    assert found[2] == found[3] == pytest.approx(1.0, rel=0.15)
    assert found[2] < common < found[0]
    by_one = cross_entropy(calibration.scale_logits(logits, common), labels).mean()
    assert cross_entropy(calibration.scale_logits(logits, common, found), labels).mean() < by_one - 0.01


def test_few_photos_move_little_five_nothing_and_the_ridge_holds_factors_back():
    for photos in (calibration.FEWEST, 2 * calibration.FEWEST):
        for seed in range(40):  # without the ridge 0.22 to 3.9
            assert 0.8 < fit_crops(*draw_crops((photos, 5), 1.0, seed))[0] < 1.4
    logits, labels = draw_crops((5, 100), 1.0)
    labels[:5] = 1 - logits[:5, :2].argmax(axis=1)  # all five of them wrong
    assert fit_crops(logits, labels)[:2] == (1.0, 1.0)
    logits, labels = draw_crops((60, 60), 3.0)
    free, held, fast = (fit_crops(logits, labels, ridge=r)[0] for r in (0.0, 3.0, 1e6))
    assert free > held > 1.2
    assert fast == pytest.approx(1.0, abs=1e-3)


def test_without_two_crops_and_photos_the_common_temperature_stays():
    logits, labels = draw_crops((100, 100), 3.0)
    for names in ("abcd", ("rose/a", "rose/b", "rose/c", "background/none"), ("a", "b", "rose/c", "rose/d")):
        common, offset = calibration.fit_scale(logits, labels)
        assert calibration.fit_scales(logits, labels, names) == (common, (), offset)
    assert fit_crops(logits[:0], labels[:0]) == fit_crops(logits[:5], labels[:5]) == ()
    names = ("chilli", "chilli", "tomato", "")  # a class without a crop keeps the common one
    assert fit_crops(logits, labels, names, 0.8)[3] == 0.8


def model(**changes):
    fields = {"temperature": 0.5, "class_temperatures": (4.0, 4.0, 0.25, 0.25), **changes}
    return small_model(CLASSES, 32, seed=3, **fields)


def test_all_logits_of_a_photo_are_divided_by_the_temperature_of_its_predicted_class_or_the_common_one():
    logits = np.random.default_rng(0).normal(0, 5, (40, 4)).astype(np.float32)
    one = model(class_temperatures=())
    assert np.array_equal(calibration.state_probabilities(one, logits), softmax(logits / 0.5))
    assert np.array_equal(calibration.calibrate_logits(one, logits), logits.astype(np.float64) / 0.5)
    by_class = np.array((4.0, 4.0, 0.25, 0.25))[logits.argmax(axis=1), None]
    assert np.array_equal(calibration.calibrate_logits(model(), logits), logits / by_class)
    reduced = calibration.scale_logits(logits, 0.5, (4.0, 4.0, 0.25, 0.25), 0.6)
    assert np.array_equal(calibration.calibrate_logits(model(offset=0.6), logits), reduced)


def test_words_name_the_crops_that_are_less_sure_and_the_surer():
    said = calibration.describe_temperatures(model())
    assert "lowers the confidence of predictions about chilli (4.000)" in said
    assert "raises the confidence of predictions about tomato (0.250)" in said
    card = render_card(model(offset=-0.265, sections={"calibration": {"error": 0.01}}), "x")
    assert all(text in card for text in (said, ", the largest logit is raised by 0.265."))
    assert calibration.describe_temperatures(model(class_temperatures=(0.5,) * 4)).endswith("predicted as its classes.")
    assert calibration.describe_temperatures(model(class_temperatures=())) == ""
    nameless = small_model(tuple("abcd"), 32, temperature=0.5, class_temperatures=(4.0,) * 4)
    assert calibration.describe_temperatures(nameless).endswith("about unnamed crops (4.000).")
