"""Ways to calibrate, judged on photos that others fitted, on logits made for the test."""

from __future__ import annotations

import numpy as np

from benchmarks.crop_temperatures import judge_way, read_cached, ways
from benchmarks.validation import FOLDS, draw_folds
from core.diagnosis.figures import softmax

CLASSES = ("chilli/healthy", "chilli/whitefly", "tomato/healthy", "tomato/mosaic")


def two_crops(photos=1500, noise=6.0):
    """Logits of an easy and a noisy crop; labels are drawn from their softmax, the noisy one's over `noise`."""
    rng = np.random.default_rng(0)
    noisy = np.arange(photos) % 2 == 0
    logits = np.full((photos, 4), -60.0)
    logits[noisy, :2], logits[~noisy, 2:] = rng.normal(0, 5, (photos // 2, 2)), rng.normal(0, 5, (photos // 2, 2))
    p = softmax(logits / np.where(noisy, noise, 1.0)[:, None])
    return logits, (p.cumsum(axis=1) > rng.random((photos, 1))).argmax(axis=1)


def test_crops_of_unequal_noise_are_better_told_by_crop_than_by_one_temperature():
    logits, labels = two_crops()
    folds = draw_folds(np.arange(len(labels)).astype(str), 0)
    made = ways(CLASSES)
    found = {name: judge_way(made[name], logits, labels, folds) for name in ("one temperature", "by crop, ridge 3")}
    one, crop = found.values()
    assert crop.loss < one.loss - 0.02
    assert crop.error < one.error
    half = judge_way(made["by crop, then by class"], logits, labels, folds)
    assert abs(half.loss - crop.loss) < 0.02


def test_no_photo_is_judged_by_a_temperature_that_it_fitted():
    logits, labels = two_crops(200)
    folds = draw_folds(np.arange(200).astype(str), 1)
    asked = []

    def fit(some, _):
        asked.append({row.tobytes() for row in some})
        judged = {row.tobytes() for row in logits[folds == len(asked) - 1]}
        assert not judged & asked[-1]
        return 1.0, ()

    judge_way(fit, logits, labels, folds)
    assert len(asked) == FOLDS


def test_photos_of_a_group_lie_in_one_fold():
    groups = np.array(["a", "b", "c", "d"] * 20)
    folds = draw_folds(groups, 0)
    assert all(len(set(folds[groups == name])) == 1 for name in "abcd")


def test_only_logits_of_both_views_and_of_these_photos_are_read(tmp_path):
    for name, count, value in (("a", 3, 1), ("a-mirrored", 3, 3), ("b", 3, 0), ("c", 2, 0), ("c-mirrored", 2, 0)):
        np.savez(tmp_path / f"{name}.npz", logits=np.full((count, 2), value))
    (found,) = read_cached(tmp_path, 3)
    assert found.tolist() == [[2.0, 2.0]] * 3
