"""`leafclinic adapt` writes a model for a place that is better there, and refuses what it cannot do with a sentence."""

from dataclasses import replace
from shutil import copy

import cv2
import numpy as np
import pytest

from core.adapt import adapt_to_place, main
from core.config import from_dict
from core.data.dataset import Cancelled
from core.diagnosis.completion import LabelledPhotos, complete_model, compute_outputs
from core.diagnosis.head_fitting import LinearHead, Samples, fit_head
from core.diagnosis.model_file import ModelFile, read_model, write_model
from core.diagnosis.place_branch import Schedule
from core.diagnosis.prediction import Predictor
from core.models import initial_weights
from tests.core.diagnosis.test_adaptation import CLASSES, FEATURES, network

SIDE = 32
COLOURS = ((40, 160, 40), (120, 140, 40), (40, 120, 120), (150, 90, 60))


def take_photos(count, seed, light=0):
    """Photos of one colour a class, with noise; light: added to every value."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), count)
    noise = rng.normal(0, 25, (len(labels), SIDE, SIDE, 3)) + rng.normal(0, 12, (len(labels), 1, 1, 3))
    shown = np.clip(np.array(COLOURS)[labels][:, None, None] + noise + light, 0, 255).astype(np.uint8)
    return LabelledPhotos(shown, labels)


@pytest.fixture(scope="module")
def known():
    """A model of four colours, with all that a finished training stores."""
    graph = network()
    model = ModelFile(graph, initial_weights(graph, 0), CLASSES, SIDE, name="colours", figures={"test_accuracy": 0.9},
                      sections={"data": {"sources": ["drawn"]}})
    train = take_photos(20, 0)
    predictor = Predictor(model, batch=16, threads=1, outputs=("relu",))
    features = compute_outputs(predictor, train.photos).features
    predictor.close()
    samples = Samples(features, train.labels, train.labels)
    head = fit_head(LinearHead(np.zeros((4, FEATURES)), np.zeros(4)), samples, samples, 1e-6)
    weights = {"head.weight": head.weight.astype(np.float32), "head.bias": head.bias.astype(np.float32)}
    model = replace(model, weights={**model.weights, **weights})
    return complete_model(model, train, take_photos(20, 1), threads=1)


@pytest.fixture
def place(known, tmp_path, monkeypatch):
    """The model's file, and a folder of brighter photos of two classes."""
    for name in ("FIRST", "LAST"):
        monkeypatch.setattr(f"core.diagnosis.adaptation.{name}", Schedule(5, 1, 1e-3))
    write_model(tmp_path / "known.safetensors", known)
    photos = take_photos(10, 2, light=60)
    for at in np.flatnonzero(photos.labels < 2):
        folder = tmp_path / "place" / CLASSES[photos.labels[at]]
        folder.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / f"{at}.png"), photos.photos[at][..., ::-1])
    return tmp_path


def call(place, *more, data="place"):
    return main([str(place / "known.safetensors"), "--data", str(place / data), "--out", str(place / "own.safetensors"),
                 "--cache", str(place / "cache"), "--threads", "1", *more])  # fmt: skip


@pytest.mark.thorough
def test_the_command_writes_a_model_for_the_place(place, known, capsys, monkeypatch):
    (place / "place" / CLASSES[0] / "empty.png").touch()
    (place / "place" / CLASSES[0] / "1.png").rename(place / "place" / CLASSES[0] / "0_flipLR.png")
    assert call(place) == 0
    said = capsys.readouterr().out
    assert " 1 photo is excluded: 1 x The file is empty" in said
    assert "20 photos of 2 classes (groups: 19). Before: " in said
    assert "The intervals take groups into account: 20 held-out photos (groups: 19) count as " in said
    assert f"Model: {place / 'own.safetensors'}" in said
    own, test = read_model(place / "own.safetensors"), take_photos(30, 3, light=60)
    right = []
    for model in (known, own):
        predictor = Predictor(model, batch=16, threads=1)
        right.append((predictor.probabilities(test.photos).argmax(axis=1) == test.labels)[test.labels < 2].mean())
        predictor.close()
    assert right[1] > right[0]
    assert own.classes == known.classes
    assert own.name.startswith("colours, place ")
    assert not any(name.startswith("test_") for name in own.figures), "they were measured with the head before"
    assert not {"test", "calibration"} & set(own.sections)
    first, last = own.sections["data"]["sources"]
    assert (first, "20 photos of one place" in last) == ("drawn", True)
    assert len(own.learned.marks) == 20
    assert "leakage" not in said
    (place / "own.safetensors").rename(place / "known.safetensors")
    copy(place / "place" / CLASSES[0] / "0_flipLR.png", place / "place" / CLASSES[1])
    monkeypatch.setattr("core.diagnosis.thresholds.NO_LEAF_NAMES", CLASSES[3:])
    cv2.imwrite(str(place / "place" / CLASSES[0] / "bare.png"), take_photos(1, 4).photos[3][..., ::-1])
    call(place)
    said = capsys.readouterr().out
    assert "Data leakage: The model was trained on 21 of the 22 evaluated photos." in said
    assert "The model sees no leaf in 1 of 22 photos." in said
    assert "Pictures with two labels: 1 (" in said


def test_classes_that_the_model_does_not_know_are_named(place, capsys):
    assert (call(place, data="place/apple/scab/.."), f"it: {place / 'place'}." in capsys.readouterr().err) == (2, True)
    (place / "place" / "apple" / "scab").rename(place / "place" / "apple" / "canker")
    (place / "place" / "apple").rename(place / "place" / "Apple")
    assert call(place) == 2
    assert ("does not know Apple/canker, Apple/healthy. Correct the class names, or remove these photos. It knows "
            "apple/healthy, apple/scab, bean/healthy.") in capsys.readouterr().err  # fmt: skip
    assert not (place / "own.safetensors").exists()


def test_fitting_the_last_layer_shows_progress_and_can_be_stopped(place):
    config, seen = from_dict({"data": str(place / "place"), "cache": str(place / "cache"), "threads": 1}), []

    def report(*now):
        seen.append(now)
        if now == ("head", 3, 20):
            raise Cancelled

    with pytest.raises(Cancelled):
        adapt_to_place(place / "known.safetensors", config, place / "own.safetensors", report)
    assert seen[-3:] == [("head", done, 20) for done in (1, 2, 3)]


def test_missing_photos_and_folders_are_named_at_once(place, capsys):
    assert main([str(place / "known.safetensors"), "--out", str(place / "no" / "own.safetensors")]) == 2
    said = capsys.readouterr().err
    assert all(text in said for text in ("--data: is missing", "--out: there is no folder"))
    assert main(["small", "--data", str(place / "none"), "--out", str(place / "own.safetensors")]) == 2
    assert "cannot be adapted: its file has no feature replay" in capsys.readouterr().err
