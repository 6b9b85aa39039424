"""Digits by presets: variation stays within its bounds, patterns are learned, photographed digits are read."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.data.digits import CLASSES, SIDE, read_digits
from core.diagnosis.model_file import ModelFile, read_model, write_model
from core.errors import DataError
from core.laboratory import mnist
from core.laboratory.digit_photos import read_digit
from core.laboratory.mnist import RECIPES, MnistRecipe, learn, predict, vary
from core.ops.photo import AFFINE, identity_augmentation
from tests.core.laboratory.digits_on_paper import draw_digits
from tests.helpers.noise import integers

MNIST = Path(os.environ.get("LEAFCLINIC_DATA", "")) / "mnist"


def bars(count):
    """Ten patterns with noise: a bright column for each class. Photos (N, 28, 28, 1), labels."""
    labels = np.arange(count, dtype=np.int32) % 10
    photos = integers("bars", (count, SIDE, SIDE, 1), 0, 90).astype(np.uint8)
    for photo, label in zip(photos, labels, strict=True):
        photo[:, 4 + 2 * label : 6 + 2 * label] = 220
    return photos, labels


def test_variation_turns_zooms_and_shifts_about_the_middle_within_its_bounds():
    still = vary(MnistRecipe("cnn"), 5, np.random.default_rng(0))
    assert np.array_equal(still, identity_augmentation(5, SIDE, SIDE))
    recipe = MnistRecipe("cnn", turn=10, shift=1.5, zoom=0.1)
    a = vary(recipe, 500, np.random.default_rng(0))[:, AFFINE]
    scale, angle = np.hypot(a[:, 0], a[:, 3]), np.degrees(np.arctan2(a[:, 3], a[:, 0]))
    assert 1.05 < scale.max() <= np.exp(0.1) + 1e-6
    assert 9 < np.abs(angle).max() <= 10.001
    middle = (SIDE - 1) / 2
    moved = np.stack([a[:, :2].sum(1) * middle + a[:, 2], a[:, 3:5].sum(1) * middle + a[:, 5]]) - middle
    assert 1.4 < np.abs(moved).max() <= 1.5001


@pytest.mark.parametrize("name", ["cnn", "classic"])
def test_patterns_are_learned_saved_and_read_again(name, tmp_path):
    recipe = replace(RECIPES[name], batch=20, steps=60, rate=0.02, turn=0.0, shift=0.0, zoom=0.0, dropout=0.0)
    train, test = bars(200), bars(50)
    learned = learn(recipe, train, test, "cpu")
    assert (learned.accuracy, learned.steps) == (1.0, 60)
    again = learn(recipe, train, test, "cpu")
    assert all(again.weights[n].tobytes() == a.tobytes() for n, a in learned.weights.items())
    write_model(tmp_path / "d.safetensors", ModelFile(learned.graph, learned.weights, CLASSES, SIDE))
    model = read_model(tmp_path / "d.safetensors")
    logits = predict(model.graph, model.weights, test[0], "cpu")
    assert np.array_equal(logits, predict(learned.graph, learned.weights, test[0], "cpu"))


def test_training_reports_every_so_many_steps_and_continues_from_weights(monkeypatch):
    monkeypatch.setattr(mnist, "REPORT_STEPS", 20)
    recipe = MnistRecipe("mlp", batch=10, steps=40, rate=0.002)
    reports = []
    learned = learn(recipe, bars(100), bars(50), "cpu", report=lambda *row: reports.append(row))
    assert [steps for steps, _, _ in reports] == [20, 40]
    assert reports[1][1] < reports[0][1]
    assert 0.5 < reports[0][2] < reports[1][2] == 1.0
    frozen = learn(replace(recipe, steps=1, rate=1e-30), bars(100), bars(50), "cpu", start=learned.weights)
    assert frozen.accuracy == learned.accuracy
    assert all(np.allclose(frozen.weights[n], a) for n, a in learned.weights.items())


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("LEAFCLINIC_DATA") or not MNIST.is_dir(),
                    reason="LEAFCLINIC_DATA does not lead to the digits")
def test_photographed_digits_are_read_after_a_short_lesson():
    train, test = read_digits(MNIST, "train"), read_digits(MNIST, "t10k")
    learned = learn(replace(RECIPES["cnn"], epochs=3), train, test, "cpu")
    assert learned.accuracy > 0.985
    right = sum(
        int(predict(learned.graph, learned.weights, read_digit(photo)[None], "cpu").argmax()) == digit
        for photo, digit in draw_digits()
    )
    assert right >= 18


def test_every_digit_is_white_on_black_and_centred():
    for photo, digit in draw_digits():
        read = read_digit(photo)
        assert (read.shape, read.dtype) == ((28, 28, 1), np.uint8)
        y, x = np.nonzero(read[..., 0] > 60)
        assert 17 <= max(np.ptp(y), np.ptp(x)) + 1 <= 20, digit
        weights = read[..., 0].astype(float)
        centre = [(weights.sum(1 - axis) * np.arange(28)).sum() / weights.sum() for axis in (0, 1)]
        assert np.allclose(centre, 13.5, atol=1.2), (digit, centre)
        assert (read[[0, -1]] == 0).all()
        assert np.array_equal(read_digit(read[..., 0]), read), "a digit in this format is not read as a photo"


@pytest.mark.parametrize("shape", [(400, 300, 3), (1, 3000)])
def test_an_empty_sheet_and_a_strip_are_told(shape):
    noise = np.random.default_rng(0).normal(200, 3, shape).clip(0, 255).astype(np.uint8)
    with pytest.raises(DataError, match="No digit"):
        read_digit(noise)
