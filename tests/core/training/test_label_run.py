"""A run on photos with several labels, from the folder to the diagnosis and to another program."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from core import diagnose, evaluate, export
from core.diagnosis.metrics import compute_metrics
from core.diagnosis.model_file import read_model, write_model
from core.diagnosis.onnx_model import read_onnx_model
from core.diagnosis.prediction import Predictor
from core.errors import ModelFileError
from core.training.checkpoint import RunState
from core.training.events import EpochDone
from core.training.transfer import first_network
from tests.helpers.runs import only, train
from tests.helpers.tiny_photos import write_photos


@pytest.fixture
def folder(tmp_path):
    """Green and brown photos, and such as are half green and half brown."""
    photos = write_photos(tmp_path / "leaves", each=14)
    (photos / "green+brown").mkdir()
    for number in range(14):
        halves = [cv2.imread(str(photos / name / f"{number:03d}.png")) for name in ("green", "brown")]
        cv2.imwrite(str(photos / "green+brown" / f"{number:03d}.png"), np.vstack((halves[0][:8], halves[1][:8])))
    return photos


def test_a_run_learns_labels_sets_thresholds_and_diagnoses(
    reference_plans, tiny, folder, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("core.training.finish.LEAST_PHOTOS", 10)
    config = tiny(data=str(folder), epochs=5, learning_rate=6e-3, validation=0.4, mix=0.3, label_smoothing=0.05,
                  pictures_without_leaf=0.1)  # fmt: skip
    last = only(train(config), EpochDone)[-1]
    assert min(last.average_precision, last.mean_f1) > 0.8
    model = read_model(Path(config.out))
    assert (model.multilabel, model.classes) == (True, ("brown", "green"))
    section = model.sections["rejection"]
    assert (section["score"], len(section["labels"])) == ("vim", 2), "the validation photos were not used"
    assert evaluate.main([config.out, "--split", "test"]) == 0
    assert "mean average precision" in capsys.readouterr().out
    assert diagnose.main([config.out, str(folder / "green+brown" / "000.png"), "--json"]) == 0
    assert '"threshold"' in capsys.readouterr().out
    report = Path(config.out, "report.html").read_text("utf-8")
    assert ("mean average precision" in report, "Pictures without a leaf" in report) == (True, False)
    assert not Path(config.out, "confusion.csv").exists(), "it would have no rows"
    assert export.main([config.out, "--onnx", str(tmp_path / "labels.onnx")]) == 0
    assert evaluate.main([str(tmp_path / "labels.onnx"), "--data", str(folder), "--cache", config.cache]) == 0
    assert export.main([str(tmp_path / "labels.onnx"), "--onnx", str(tmp_path / "again.onnx")]) == 2
    assert "is an ONNX file, which serves to diagnose, to evaluate" in capsys.readouterr().err
    back = read_onnx_model(tmp_path / "labels.onnx")
    squares = np.stack([cv2.imread(str(path)) for path in folder.rglob("*.png")])
    one, other = (Predictor(m, batch=8).probabilities(squares) for m in (model, back))
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert back.sections["rejection"]["labels"] == section["labels"]
    for labels, message in (([0.5], "thresholds are not valid"), ([], "thresholds are not those of its labels")):
        section["labels"] = labels
        write_model(tmp_path / "crafted.safetensors", model)
        with pytest.raises(ModelFileError, match=message):
            read_model(tmp_path / "crafted.safetensors")


def test_the_best_epoch_has_the_highest_mean_average_precision():
    first = RunState().after_epoch(figures([[2, -2], [-2, 2], [-2, 2]]), 0.0)
    ranked = figures([[2, 0.5], [0.5, 2], [2, 2]])  # both labels are stated on every photo, in the right order
    after = first.after_epoch(ranked, 0.0)
    assert (first.best_accuracy, ranked.accuracy) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (after.best_epoch, after.best_score, after.best_accuracy) == (1, 1.0, ranked.accuracy)


def figures(logits):
    return compute_metrics(np.array(logits, np.float32), np.array([[1, 0], [0, 1], [1, 1]], bool), ("scab", "rust"))


def test_one_label_per_photo_can_be_asked_for(reference_plans, tiny, folder):
    config = tiny(data=str(folder), epochs=1, labels="single")
    train(config)
    assert read_model(Path(config.out)).classes == ("brown", "green", "green+brown")


def test_a_relu_behind_the_classifier_is_removed(tiny):
    config = tiny(model="squeezenet1_1", image_size=64)
    assert first_network(config, None, ("a", "b")).graph.nodes[-2].op == "relu"
    graph = first_network(tiny(model="squeezenet1_1", image_size=64, labels="multi"), None, ("a", "b")).graph
    assert [node.op for node in graph.nodes[-2:]] == ["conv2d", "global_avg_pool"]
