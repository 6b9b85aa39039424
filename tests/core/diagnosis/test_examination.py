"""A small network completed and used on drawn leaves, all on the CPU."""

from contextlib import closing
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

from core.diagnosis.background_dependence import Baseline
from core.diagnosis.calibration import fit_class_temperatures, measure_reliability, state_probabilities
from core.diagnosis.completion import complete_model, sample_per_class
from core.diagnosis.examination import Examiner
from core.diagnosis.model_file import CALIBRATION
from core.diagnosis.prediction import Predictor
from core.diagnosis.verdict import NO_LEAF, NOT_SURE
from core.errors import InputError
from tests.helpers.models import predict, small_model
from tests.helpers.squares import SIDE, squares


@pytest.fixture(scope="module")
def completed():
    model = small_model(("apple/scab", "background/none", "bean/rust"), SIDE)
    return complete_model(model, squares(40, 0), squares(40, 1), baseline=Baseline(0.5, 0.5))


def test_completion_fits_temperatures_by_crop_and_all_it_tells_is_of_these(completed):
    seen = squares(40, 1)
    logits = predict(completed, seen.photos, batch=8)["logits"]
    crops = ("apple", "background", "bean")
    start, offset = (completed.temperature,) * 3, completed.offset
    assert completed.class_temperatures == fit_class_temperatures(logits, seen.labels, crops, start, offset)
    assert offset != 0
    assert len(set(completed.class_temperatures)) > 1
    stated = state_probabilities(completed, logits)
    assert completed.sections[CALIBRATION]["error"] == pytest.approx(measure_reliability(stated, seen.labels).error)
    at_all = completed.sections["rejection"]["curve"][0]
    assert at_all[1] == pytest.approx(stated.max(axis=1).min())
    assert set(completed.sections) == {CALIBRATION, "rejection", "reading_leaf"}
    assert completed.sections["reading_leaf"]["chance"] == 15 / 28, "of the leaves: 12 of the 40 photos show none"
    stale = replace(completed, temperature=9.0, class_temperatures=(1.0, 2.0, 3.0), sections={}, extra={})
    again = complete_model(stale, squares(40, 0), seen)
    assert (again.temperature, again.class_temperatures) == (completed.temperature, completed.class_temperatures)
    assert again.offset == offset


def examine(model, *photos, **how):
    with closing(Examiner(model)) as examiner:
        return [examiner.examine(photo, **how) for photo in photos]


def test_an_examination_says_word_place_and_amount_also_of_odd_shapes_and_no_amount_without_a_leaf(completed):
    (found,) = examine(completed, squares(1, 5).photos[0])
    assert found.verdict.word in (*completed.classes, NOT_SURE, NO_LEAF)
    assert sum(g.probability for g in found.top) == pytest.approx(1, abs=1e-6)
    assert found.severity.leaf.shape == found.photo.shape[:2] == (SIDE, SIDE)
    found = examine(completed, *(np.zeros((h, w, 3), np.uint8) for h, w in ((1, 1), (3, 500), (97, 61))))
    assert all(each.verdict.word for each in found)
    for photo in (np.zeros((9, 9), np.uint8), np.ones((9, 9, 3)), np.zeros((0, 9, 3), np.uint8)):
        with pytest.raises(InputError, match="is .height, width, 3. of uint8 in RGB, not"):
            examine(completed, photo)
    (found,) = examine(refusing_from(completed, 0.0), squares(1, 5).photos[0])
    assert found.verdict.word == NO_LEAF
    assert not found.severity.leaf.any()


def test_a_predictor_decides_as_an_examination_and_both_report_what_they_cannot_read(completed, tmp_path, monkeypatch):
    photo, paths = squares(1, 5).photos[0], [str(tmp_path / "bad.png"), str(tmp_path / "leaf.png")]
    (tmp_path / "bad.png").touch()
    cv2.imwrite(paths[1], photo[..., ::-1])
    monkeypatch.setattr("core.diagnosis.prediction.time", SimpleNamespace(perf_counter=count(0.0, 0.5).__next__))
    with (closing(Predictor(completed, batch=3, threads=1)) as predictor,
          closing(Examiner(completed, coverage=1.0)) as examiner):  # fmt: skip
        bad, found, same = predictor.diagnose([*paths, paths[1]])
        with pytest.raises(InputError, match="cannot be computed"):
            predictor.predict(np.zeros((0, SIDE, SIDE, 3), np.uint8))
        unread, examined = (examiner.examine_file(path)[0] for path in paths)
    (wanted,) = examine(completed, photo, crop=False)
    assert (bad.milliseconds, found.milliseconds, same.milliseconds) == (0, 750, 750), "reading, and half of the batch"
    assert (bad.error, unread.error, found.verdict) == ("The file is empty.", "The file is empty.", wanted.verdict.word)
    assert examined.verdict
    assert examined.grade is None or 0 <= examined.grade <= 11
    assert found.prediction.familiar == pytest.approx(wanted.prediction.familiar)


def refusing_from(model, probability):
    rejection = {**model.sections["rejection"], "no_leaf": probability}
    return replace(model, sections={**model.sections, "rejection": rejection})


@pytest.mark.thorough
def test_a_photo_out_of_focus_too_dark_or_tiny_says_so_beside_its_answer(completed):
    photo = cv2.resize(squares(1, 5).photos[0], (256, 256), interpolation=cv2.INTER_NEAREST)
    shown = photo, cv2.GaussianBlur(photo, (0, 0), 6), photo // 4, cv2.resize(photo, (1, 1))
    told = [" ".join(found.warnings) for found in examine(completed, *shown)]
    assert "focus" not in told[0]
    assert all(words in text for words, text in zip(("focus", "dark", "has 1 of 96 pixels"), told[1:], strict=True))


@pytest.mark.parametrize("sides", [(400, 400), (400, 600)])
def test_a_photo_of_two_leaves_says_so_and_one_of_one_does_not(completed, sides):
    photo = np.full((*sides, 3), 150, np.uint8)
    middle = sides[1] // 2
    photo[100:300, middle - 190 : middle - 20] = (60, 140, 50)
    both = photo.copy()
    both[100:300, middle + 20 : middle + 190] = (60, 140, 50)
    one, two = examine(refusing_from(completed, 2.0), photo, both)
    assert not [text for text in one.warnings if "leaves" in text]
    assert "This photo seems to show 2 leaves" in " ".join(two.warnings)
    assert two.regions == 2


def test_a_small_leaf_is_cut_out_first_and_not_when_switched_off(completed):
    photo = np.full((400, 400, 3), 150, np.uint8)
    photo[150:250, 220:300] = (60, 140, 50)
    model = refusing_from(completed, 2.0)
    (cut,), (whole,) = examine(model, photo), examine(model, photo, crop=False)
    y0, x0, y1, x1 = (400 * edge for edge in cut.box)
    assert y0 < 150 < 250 < y1
    assert x0 < 220 < 300 < x1
    assert y1 - y0 < 0.55 * 400
    assert cut.severity.leaf.mean() > 2 * whole.severity.leaf.mean()
    assert whole.box == (0, 0, 1, 1)


def test_some_photos_per_class_are_drawn_by_seed():
    labels = np.array([0] * 10 + [1] * 2)
    rows = sample_per_class(labels, 4, 0)
    assert (labels[rows] == 0).sum() == 4
    assert (labels[rows] == 1).sum() == 2
    assert rows.tolist() == sample_per_class(labels, 4, 0).tolist()
