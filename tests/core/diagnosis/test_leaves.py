"""Several leaves in one photo: boxes from the detector's maps, a diagnosis of each leaf, the worst finding first."""

import csv
import io
import json
from dataclasses import replace
from unittest.mock import Mock

import cv2
import numpy as np
import pytest

from core.data.photo import place_in_square
from core.diagnosis.boxes import decode_maps, fuse, overlaps, suppress
from core.diagnosis.diagnosis_output import WITH_LEAVES, show_photos
from core.diagnosis.examination import Examiner
from core.diagnosis.leaf_detector import PATHS, FoundLeaf, LeafDetector, choose_leaves, cut_square, letterbox
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.prediction import Diagnosis, LeafDiagnosis
from core.diagnosis.severity import Severity
from core.diagnosis.verdict import NOT_SURE, ClassProbability, Prediction, Verdict, count_findings
from tests.helpers.models import small_model

LEFT, RIGHT = (0.3, 0.0, 0.7, 0.4), (0.3, 0.6, 0.7, 1.0)


def test_maps_become_boxes_at_the_maxima_of_the_heatmap_and_two_predictions_are_fused():
    maps = np.full((10, 10, 5), -9.0, np.float32)
    maps[2, 3] = (4, np.log(0.2), np.log(0.4), 0.25, -0.25)
    maps[2, 4, 0], maps[3, 2] = 3, (2, np.log(0.2), np.log(0.4), -0.75, 0.75)  # beside a higher one; the same box
    maps[7, 7], maps[8, 6] = (1, np.log(0.3), np.log(0.3), 0, 0), (0.5, np.log(0.1), np.log(0.1), 0, 0)
    boxes, scores = decode_maps(maps, 0.3)
    assert boxes == pytest.approx(np.array([(0.175, 0.125, 0.375, 0.525), (0.6, 0.6, 0.9, 0.9), (0.8, 0.6, 0.9, 0.7)]))
    assert list(scores) == pytest.approx([0.982, 0.731, 0.622], abs=1e-3)
    assert suppress(np.stack([boxes[1], boxes[0], boxes[1] + 0.01]), np.array([0.5, 0.9, 0.6])) == [1, 2]
    assert overlaps((0, 0, 1, 1), np.array([[0, 0.5, 1, 1.5]])) == pytest.approx([1 / 3])
    fused, means = fuse((boxes, scores), (boxes[:1] + 0.02, scores[:1] / 3))
    assert fused == pytest.approx(np.stack([boxes[0] + 0.005, *boxes[1:]])), "means, weighted by score"
    assert means == pytest.approx([scores[0] * 2 / 3, *scores[1:] / 2]), "a box of one prediction alone counts half"
    assert fuse((boxes[:0], scores[:0]), (boxes, scores))[1] == pytest.approx(scores / 2)


def test_the_same_leaves_are_found_in_the_mirror_image(monkeypatch):
    monkeypatch.setattr("core.diagnosis.leaf_detector.SCORE", 0.05)  # of a drawn ellipse
    detector, photo = LeafDetector(PATHS[:1] * 2, threads=1), np.full((90, 120, 3), 200, np.uint8)
    cv2.ellipse(photo, (40, 50), (16, 28), 20, 0, 360, (40, 120, 40), -1)
    found, mirrored = ([(*leaf.box, leaf.score) for leaf in detector.find(p)] for p in (photo, photo[:, ::-1]))
    detector.close()
    wanted = [(y0, 1 - x1, y1, 1 - x0, score) for y0, x0, y1, x1, score in found]
    assert found
    assert np.array(mirrored) == pytest.approx(np.array(wanted), abs=1e-3)


@pytest.mark.parametrize("shape", [(60, 120), (120, 60), (60, 60)])
def test_a_box_is_at_the_same_place_of_photos_of_any_shape(shape):
    """The detector sees a square with the whole photo in it; boxes are shares of the photo's own centred square."""
    detector = LeafDetector.__new__(LeafDetector)
    maps = np.full((20, 20, 5), -9.0, np.float32)
    maps[10, 10] = (4, np.log(0.2), np.log(0.2), -0.5, -0.5)  # in the middle, a fifth of the longer side
    both = maps, np.roll(maps[:, ::-1], 1, axis=1)  # cells have their middle half a cell from their corner
    detector._networks = [Mock(**{"predict.return_value": {"maps": m[None]}, "model.source_side": 120}) for m in both]
    (leaf,) = detector.find(np.zeros((*shape, 3), np.uint8))
    half = 0.1 * max(shape) / min(shape)
    assert leaf.box == pytest.approx((0.5 - half, 0.5 - half, 0.5 + half, 0.5 + half), abs=1e-6)
    photo = np.zeros((*shape, 3), np.uint8)
    photo[shape[0] // 2 - 2 : shape[0] // 2 + 2, shape[1] // 2 - 2 : shape[1] // 2 + 2] = 255
    assert letterbox(photo, 120).max(axis=2)[60, 60] > 200


def test_a_leaf_is_cut_out_as_a_square_inside_the_photo():
    photo = np.zeros((100, 200, 3), np.uint8)
    photo[30:70, 150:190] = 255
    cut, place = cut_square(photo, (0.3, 1.0, 0.7, 1.4), 42)
    assert (cut.shape, place) == ((42, 42, 3), pytest.approx((0.29, 0.99, 0.71, 1.41)))
    assert cut.mean() / 255 == pytest.approx((40 / 42) ** 2, abs=0.02)
    cut, place = cut_square(photo, (0.3, 1.3, 0.7, 1.5), 42)
    assert (cut.shape, place) == ((42, 42, 3), pytest.approx((0.29, 1.08, 0.71, 1.5))), "at the border"


def test_a_map_of_a_part_is_at_its_place_in_the_square_and_cut_at_its_border():
    part = np.full((7, 7), 0.5, np.float32)
    whole = place_in_square(part, (0.2, 0.4, 0.6, 0.8), 20)
    assert np.array_equal(np.argwhere(whole == 0.5)[[0, -1]], [[4, 8], [11, 15]])
    assert whole.sum() == pytest.approx(0.5 * 8 * 8)
    assert place_in_square(part, (-0.2, 0.9, 0.2, 1.3), 20).sum() == pytest.approx(0.5 * 4 * 2)
    assert not place_in_square(part, (0.2, 1.1, 0.6, 1.5), 20).any()


def test_diseases_come_first_then_the_most_frequent():
    words = ["a/healthy", "a/rust", "a/healthy", NOT_SURE, "a/scab", "a/scab", NOT_SURE, NOT_SURE]
    assert count_findings(words) == [("a/scab", 2), ("a/rust", 1), (NOT_SURE, 3), ("a/healthy", 2)]
    assert count_findings(["b/x", NOT_SURE, "a/x", NOT_SURE])[0] == ("a/x", 1), "no more than half of them"
    assert count_findings(["a/scab", *[NOT_SURE] * 2]) == [(NOT_SURE, 2), ("a/scab", 1)], "most leaves are doubtful"


def test_small_leaves_in_the_background_are_not_diagnosed():
    leaves = [FoundLeaf(LEFT, 0.5), FoundLeaf((0, 0, 0.08, 0.07), 0.9), FoundLeaf(RIGHT, 0.4)]
    several, subject = leaves[::2], FoundLeaf((0.1, 0.1, 0.9, 0.9), 0.6)
    assert (choose_leaves(leaves, (60, 90)), choose_leaves([], (60, 90))) == (several, [])
    assert choose_leaves([*several, subject], (60, 60)) == [subject], "the photo's subject has the others behind it"
    assert choose_leaves([*several, subject], (60, 180)) == [*several, subject], "it is a small part of the photo"


@pytest.fixture(params=["cnn", "mlp"])
def examiner(request):
    """Of a network with a feature map, and of one without."""
    examiner = Examiner(small_model(("a/healthy", "a/scab"), network=request.param))
    examiner._detector = Mock(spec=LeafDetector)
    yield examiner
    examiner.close()


def test_a_photo_of_several_leaves_gets_the_worst_finding_and_one_of_one_leaf_its_own(examiner, monkeypatch):
    photo = np.random.default_rng(0).integers(0, 255, (60, 90, 3)).astype(np.uint8)
    sick = {LEFT: 0.2, RIGHT: 0.9}
    found = [FoundLeaf(box, 0.5) for box in sick]
    examiner._detector.find.return_value = found
    own = type(examiner.predictor).predict
    shown = np.log([[1 - p, p] for p in sick.values()])
    side = examiner.model.source_side
    half = np.indices((side, side))[0] < side // 2
    with monkeypatch.context() as patch:
        patch.setattr(type(examiner.predictor), "predict", lambda self, photos, views=0: own(self, photos, views)
                      | {"logits": shown})  # fmt: skip
        patch.setattr("core.diagnosis.examination.segment", lambda photo: Severity(np.ones_like(half), half))
        several = examiner.examine(photo, leaves=True)
    assert [leaf.box for leaf in several.leaves] == [RIGHT, LEFT]
    assert (several.verdict.word, several.top[0].probability) == ("a/scab", pytest.approx(0.9))
    assert [leaf.diseased for leaf in several.leaves] == [pytest.approx(50, abs=2), None]
    rows, columns = (np.flatnonzero(several.severity.leaf.any(axis=axis)) for axis in (1, 0))
    assert (rows[0] / side, (rows[-1] + 1) / side) == pytest.approx((0.3, 0.7), abs=1 / side)
    assert (columns[0], columns[-1]) == (0, side - 1)
    assert not several.severity.leaf[:, side // 2].any(), "between the leaves"
    assert several.severity.percent == pytest.approx(25, abs=4), "of the healthy leaf nothing"
    examiner._detector.find.return_value = found[:1]
    one, plain = examiner.examine(photo, leaves=True), examiner.examine(photo)
    assert (one.leaves, plain.leaves, one.verdict) == ((), (), plain.verdict)
    assert np.array_equal(one.prediction.probabilities, plain.prediction.probabilities)


def test_text_json_and_csv_have_the_leaves(capsys):
    def leaf(box, word, probability):
        guess, area = ClassProbability(word, probability, 0.5), 30.0 if word == "a/scab" else None
        return LeafDiagnosis(box, Verdict(word), (guess,), Prediction(np.zeros(2), 0.0), area)

    leaves = (leaf(RIGHT, "a/scab", 0.9), leaf(LEFT, "a/scab", 0.8), leaf(LEFT, "a/healthy", 0.7))
    several = Diagnosis("p.jpg", "a/scab", leaves[0].top, 5.0, leaves=leaves)
    one = replace(several, path="q.jpg", leaves=())
    doubtful = replace(several, reason="Unlike any.", notes=("Blurred.",))
    assert show_photos([several, one, doubtful], "text", ModelIdentity()) == 3
    counted = "p.jpg: 2 of 3 leaves: a/scab; 1 of 3 leaves: a/healthy"
    assert capsys.readouterr().out == (f"{counted}\nq.jpg: a/scab. a/scab 90.0 % (threshold 50.0 %)\n"
                                       f"{counted}. Unlike any. Blurred.\n")  # fmt: skip
    show_photos([doubtful, one], "json", ModelIdentity())
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [leaf["verdict"] for leaf in first["leaves"]] == ["a/scab", "a/scab", "a/healthy"]
    assert first["leaves"][0]["box"] == list(RIGHT)
    assert first["leaves"][0]["top"] == [{"label": "a/scab", "probability": 0.9, "threshold": 0.5}]
    assert [(leaf.get("diseased"), leaf.get("grade")) for leaf in first["leaves"]] == [(30, 5), (30, 5), (None, None)]
    assert (first["milliseconds"], first["reason"], first["notes"]) == (5, "Unlike any.", ["Blurred."])
    assert not {"leaves", "reason", "notes", "diseased", "grade"} & set(second)
    show_photos([doubtful, one], "csv", ModelIdentity(), WITH_LEAVES)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["reason"] + row["milliseconds"] for row in rows] == ["Unlike any. Blurred.5.00", "", "", "", "5.00"]
    assert [rows[2].get(f"label{number}") for number in range(5)] == [None, "a/scab", "", "", None]
    assert [(row["path"], row["leaf"], row["verdict"], row["x0"], row["diseased"]) for row in rows] == [
        ("p.jpg", "", "a/scab", "", ""), ("p.jpg", "1", "a/scab", "0.6000", "30"),
        ("p.jpg", "2", "a/scab", "0.0000", "30"), ("p.jpg", "3", "a/healthy", "0.0000", ""),
        ("q.jpg", "", "a/scab", "", ""),
    ]  # fmt: skip
