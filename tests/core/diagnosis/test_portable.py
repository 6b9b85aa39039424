"""A model as a file for other programs: the same logits, all it needs to be used, and its loss in eight bits."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

from core.diagnosis import portable
from core.diagnosis.completion import Labelled
from core.diagnosis.model_file import ModelFile
from core.diagnosis.portable import agreement, check_onnx, measure_loss, measure_ranges, quantise_model, to_onnx
from core.diagnosis.prediction import Predictor
from core.errors import LeafClinicError
from core.models import build, initial_weights
from core.onnx import read_onnx, write_quantised_onnx
from tests.helpers.noise import integers

SECTION = {"score": "energy", "far": -3.5, "no_leaf_class": -1, "no_leaf": 1.0, "curve": [[1.0, 0.0, 0.9, 0.0]]}


def model(name="cnn", size=16):
    graph = build(name, 3, size, dropout=0.2)
    return ModelFile(graph, initial_weights(graph, 2), ("été", "b", "c"), size, temperature=1.3, licence="CC0",
                     sections={"rejection": SECTION})


def squares(count, size=16):
    return integers("squares", (count, size, size, 3), 0, 256).astype(np.uint8)


def test_a_file_holds_all_that_is_needed_to_use_it(tmp_path):
    data = to_onnx(model("mobilenetv2", 32))
    (tmp_path / "m.onnx").write_bytes(data)
    back = read_onnx(tmp_path / "m.onnx")
    assert (back.classes, back.temperature, back.preprocessed) == (("été", "b", "c"), 1.3, True)
    told = {entry.key: entry.value for entry in onnx.load_model_from_string(data).metadata_props}
    assert json.loads(told["thresholds"]) == SECTION
    assert (told["square"], told["licence"]) == ("32", "CC0")
    assert not any(node.op_type == "BatchNormalization" for node in onnx.load_model_from_string(data).graph.node)


def test_the_check_tells_the_difference_and_refuses_another_network():
    one = model()
    check = check_onnx(to_onnx(one), one)
    assert check.version == onnxruntime.__version__
    assert 0 <= check.difference < 1e-4
    other = {**one.weights, "dense2.bias": one.weights["dense2.bias"] + np.float32(0.001)}
    with pytest.raises(LeafClinicError, match="answers differently by 0.001"):
        check_onnx(to_onnx(one), replace(one, weights=other))


def test_without_onnxruntime_nothing_is_claimed(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    one = model()
    assert check_onnx(to_onnx(one), one) is None


def test_ranges_are_means_of_each_photos_extremes(monkeypatch):
    monkeypatch.setattr(portable, "CHUNK", 3)
    one = portable.for_inference(model())
    photos = squares(7)
    ranges = measure_ranges(one, photos)
    predictor = Predictor(replace(one, sections={}), batch=7, outputs=tuple(ranges))
    outputs = predictor.predict(photos)
    predictor.close()
    for name, (low, high) in ranges.items():
        flat = outputs[name].reshape(7, -1)
        assert (low, high) == pytest.approx((flat.min(1).mean(), flat.max(1).mean()), rel=1e-5)


def test_eight_bits_answer_nearly_as_float32_and_the_loss_is_counted():
    one, photos = model(), squares(40)
    predictor = Predictor(replace(one, sections={}), batch=8)
    answers = predictor.predict(photos)["logits"].argmax(axis=1)
    predictor.close()
    labels = answers.copy()
    labels[:4] = (labels[:4] + 1) % 3  # four wrong answers in float32
    quantised = quantise_model(one, Labelled(photos, labels))
    loss = measure_loss(quantised, one, Labelled(photos, labels))
    assert (loss.photos, loss.float32) == (40, 0.9)
    assert loss.changed <= 6
    assert abs(loss.int8 - loss.float32) <= loss.changed / 40 + 1e-9
    said = agreement(write_quantised_onnx(quantised), quantised, photos[:10])
    assert said[0] == onnxruntime.__version__
    assert said[1] >= 9
    spoiled = replace_scale(quantised, "photo")
    assert measure_loss(spoiled, one, Labelled(photos, labels)).changed > loss.changed


def replace_scale(quantised, name):
    """The network with one tensor's steps twenty times too coarse."""
    scale = quantised.scales[name]
    return replace(quantised, scales={**quantised.scales, name: replace(scale, step=20 * scale.step, zero=6)})
