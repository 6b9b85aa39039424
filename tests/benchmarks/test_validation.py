"""What candidates are judged by, on logits made for the test, and logits that are computed once."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from benchmarks import validation
from benchmarks.candidates import judge_all, read_candidates
from benchmarks.validation import ValidationPhotos, describe, find_photos, read_logits, score
from core.diagnosis.model_file import ModelFile, write_model
from core.diagnosis.prediction import Predictor
from core.errors import ModelFileError
from core.models import build, initial_weights

CLASSES = ("bean/rust", "bean/healthy", "background/none")


def photos_of(labels, field):
    crops = np.array([CLASSES[label].split("/")[0] for label in labels])
    paths = tuple(map(str, range(len(labels))))
    return ValidationPhotos(paths, CLASSES, labels, crops, field, np.array(paths))


def test_the_score_counts_field_photos_twice_and_the_surest():
    labels = np.array([0, 1, 0, 1, 2, 2, 0, 1, 0, 1])
    logits = 4.0 * np.eye(3, dtype=np.float32)[labels]
    logits[3] = (0.2, 0.1, 0.0)  # wrong, and the least sure
    found = score(logits, photos_of(labels, np.arange(10) < 4))
    assert found.right == pytest.approx(0.9)
    assert found.field == pytest.approx(0.75)
    assert found.mean == pytest.approx(0.825)
    assert (found.covered, found.wrong) == (pytest.approx(1.0), 0)
    assert found.bean == pytest.approx(7 / 8)
    assert found.tomato == 0  # none among them
    assert found.loss == pytest.approx((found.nll + found.field_nll + found.bean_nll) / 3)
    assert 2 * found.nll < found.field_nll  # one wrong of four, not of ten
    assert "90.00 % in all  75.00 % field" in describe(found)


def test_the_loss_is_at_the_temperature_that_fits():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 500)
    logits = (2.0 * np.eye(3)[labels] + rng.normal(0, 1, (500, 3))).astype(np.float32)
    photos = photos_of(labels, np.arange(500) < 100)
    want = score(logits, photos)
    for factor in (0.3, 5.0):
        assert score(factor * logits, photos).nll == pytest.approx(want.nll, rel=1e-4)


def write_photos(root):
    rng = np.random.default_rng(0)
    rows = ["path,crop,condition,setting,split,group"]
    for i in range(6):
        crop, condition = CLASSES[i % 3].split("/")
        cv2.imwrite(str(root / f"{i}.png"), rng.integers(0, 256, (40, 40, 3)).astype(np.uint8))
        rows.append(f"{i}.png,{crop},{condition},{'field' if i < 2 else 'lab'},{'val' if i < 5 else 'test'},{i}")
    (root / "manifest.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_candidate(path, seed=0, classes=CLASSES):
    graph = build("cnn", len(classes), 32)
    write_model(path, ModelFile(graph, initial_weights(graph, seed), classes, 32))
    return path


def test_logits_are_computed_once_for_the_same_weights_and_photos(tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "CACHE", tmp_path / "cache")
    write_photos(tmp_path)
    photos = find_photos(tmp_path, CLASSES)
    assert [Path(path).name for path in photos.paths] == [f"{i}.png" for i in range(5)]  # the test split is not read
    assert photos.field.tolist() == [True, True, False, False, False]
    assert photos.groups.tolist() == ["0", "1", "2", "3", "4"]
    one, other = (read_candidates([write_candidate(tmp_path / f"{s}.safetensors", s)], 0, 0)[0] for s in (0, 1))
    plain, mirrored, others = (read_logits(m, photos, side) for m, side in ((one, False), (one, True), (other, False)))
    squares = np.concatenate(list(photos.chunks(32)))
    predictor = Predictor(one)
    assert np.array_equal(mirrored, predictor.predict(squares[:, :, ::-1])["logits"])
    predictor.close()
    assert not np.array_equal(plain, mirrored)
    assert not np.array_equal(plain, others)
    monkeypatch.setattr(validation, "Predictor", None)  # not asked again
    assert np.array_equal(read_logits(one, photos, False), plain)
    with pytest.raises(TypeError):
        read_logits(other, photos, True)


def test_every_model_and_every_pair_is_judged_with_one_and_two_views():
    labels = np.array([0, 1, 2, 0])
    right = 4.0 * np.eye(3, dtype=np.float32)[labels]
    wrong = np.roll(right, 1, axis=1) / 2
    logits = [(right, right), (wrong, right), (wrong, wrong)]
    found = list(judge_all(("a", "b", "c"), logits, photos_of(labels, labels < 2), 2))
    by = {(c.models, c.views): c.score.right for c in found}
    assert len(by) == 2 * (3 + 3)
    assert (by[("a",), 1], by[("b",), 1], by[("c",), 2]) == (1, 0, 0)
    assert by[("b",), 2] == by[("a", "b"), 1] == by[("a", "c"), 2] == 1  # the mean of logits: the larger wins
    assert by[("b", "c"), 1] == 0


def test_candidates_are_read_as_they_would_be_stored(tmp_path):
    paths = [write_candidate(tmp_path / "a.safetensors"), write_candidate(tmp_path / "b.safetensors", 1)]
    assert all(model.steps for model in read_candidates(paths, 8, 0))
    assert all(model.half and not model.steps for model in read_candidates(paths, 16, 0))
    other = write_candidate(tmp_path / "c.safetensors", 0, (*CLASSES[:2], "chilli/healthy"))
    with pytest.raises(ModelFileError, match="tells other classes apart"):
        read_candidates([*paths, other], 8, 0)
