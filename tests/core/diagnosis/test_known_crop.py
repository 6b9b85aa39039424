"""Diagnoses for a known crop: other crops' classes are excluded, the probability of no leaf stays."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from core.diagnose import main
from core.diagnosis.known_crop import find_crop, list_crops
from core.diagnosis.prediction import Predictor
from core.diagnosis.thresholds import untested_thresholds
from core.diagnosis.verdict import NOT_SURE, UNFAMILIAR, DecisionRule, Prediction, Verdict
from core.errors import InputError
from tests.helpers.models import small_model, write_small_model
from tests.helpers.tiny_photos import write_photos

CLASSES = ("apple/rust", "apple/scab", "background/none", "bean/rust")


def test_probabilities_are_those_given_the_crop_and_a_leaf():
    stated = np.array([[0.1, 0.3, 0.2, 0.4], [0.0, 0.0, 0.1, 0.9]])
    rule = DecisionRule(CLASSES, None, crop="apple")
    known, familiar = rule.restrict(stated, np.array([-1.0, -2.0]))
    assert known[0] == pytest.approx([0.2, 0.6, 0.2, 0.0])
    assert known[1] == pytest.approx([0.0, 0.0, 0.1, 0.0]), "nothing of a crop that is impossible"
    assert familiar.tolist() == [-1.0, -2.0], "the second may show no leaf"
    labels = replace(rule, thresholds=untested_thresholds(4))
    assert labels.restrict(stated, 0.0)[0][0] == pytest.approx([0.1, 0.3, 0.2, 0.0])
    assert labels.restrict(np.array([0.002, 0.003, 0.001, 0.001]), 0.0)[1] == 0.0, "a leaf without any of the labels"
    assert replace(rule, crop="").restrict(stated, 0.0)[0] is stated
    known = Prediction(*rule.restrict(np.array([0.001, 0.003, 0.001, 0.995]), -1.0))
    assert rule.decide(known) == Verdict(NOT_SURE, UNFAMILIAR), "a leaf of another crop"


def test_crops_are_those_of_the_classes_and_found_by_name_and_a_coverage_is_a_share():
    assert list_crops(CLASSES) == ["apple", "bean"]
    assert list_crops(CLASSES[:3]) == list_crops(("rust", "scab", "healthy")) == []
    assert (find_crop(CLASSES, " Apple"), find_crop(CLASSES, "")) == ("apple", "")
    assert find_crop(("t\u00e1o/a", "b/a"), "Ta\u0301o") == "t\u00e1o"
    with pytest.raises(InputError, match=r"does not know the crop 'plum'. It knows apple, bean\."):
        find_crop(CLASSES, "plum")
    with pytest.raises(InputError, match="not of several crops"):
        find_crop(("rust", "scab"), "apple")
    with pytest.raises(InputError, match="The coverage is a share from 0 to 1, not 90"):
        DecisionRule(CLASSES, None, 90)


def test_every_prediction_and_the_command_are_for_the_known_crop(tmp_path, capsys):
    photos = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)
    model = small_model(CLASSES, 16)
    with closing(Predictor(model)) as plain, closing(Predictor(model, known_crop="Bean")) as known:
        stated = np.stack([p.probabilities for p in plain.predict_calibrated(photos)])
        want, _ = DecisionRule(CLASSES, None, crop="bean").restrict(stated, 0.0)
        assert np.array_equal(np.stack([p.probabilities for p in known.predict_calibrated(photos)]), want)
    file = str(write_small_model(tmp_path / "m.safetensors", CLASSES, 16))
    photo = str(write_photos(tmp_path / "photos") / "green" / "000.png")
    for more in ([], ["--examine"], ["--group", "folder"]):
        assert main([file, photo, "--device", "cpu", "--known-crop", "BEAN", *more]) == 0
        assert "apple" not in capsys.readouterr().out
