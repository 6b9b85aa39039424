"""Two model files as one: its answers are the mean, and all that a model file is asked for works with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from core.diagnosis.completion import Labelled, complete_model
from core.diagnosis.examination import Examiner
from core.diagnosis.familiarity import FeatureStatistics
from core.diagnosis.joined_model import join_models
from core.diagnosis.model_card import render_card
from core.diagnosis.model_file import ModelFile, in_eight_bits, read_model, write_model
from core.diagnosis.portable import check_onnx, to_onnx
from core.diagnosis.prediction import Predictor
from core.errors import ModelFileError
from core.graph import PHOTO
from core.models import build
from core.onnx import read_onnx
from core.ops.builder import Builder
from core.program import fold_weights
from tests.helpers.gpu_network import random_weights

SIZE, CLASSES = 32, ("bean/rust", "bean/healthy", "background/none")


def network():
    """What ends as MobileNetV2 does, small: of 2,560 features the statistics alone take a minute."""
    b = Builder("little", (SIZE, SIZE, 3), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    x = b.add("conv2d", "a", PHOTO, filters=24, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1), bias=False)
    x = b.add("relu6", "c", b.add("batch_norm", "b", x))
    x = b.add("depthwise_conv2d", "d", x, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    x = b.add("dropout", "f", b.add("global_avg_pool", "e", b.add("relu6", "d6", x)), rate=0.2)
    return b.graph(b.add("dense", "g", x, units=len(CLASSES)))


def model(seed=0, **changes):
    graph = network()
    return replace(ModelFile(graph, random_weights(graph, seed), CLASSES, SIZE), **changes)


def some_photos(count, seed=0):
    rng = np.random.default_rng(seed)
    return Labelled(rng.integers(0, 256, (count, SIZE, SIZE, 3)).astype(np.uint8), np.arange(count) % 3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A pair in eight bits, completed, as it comes out of its file; and the two it is of."""
    members = [model(0, temperature=2.0, class_temperatures=(1.0, 2.0, 3.0), sections={"old": {}}), model(1)]
    joined = in_eight_bits(join_models(members))
    assert (joined.temperature, joined.class_temperatures, joined.sections) == (1.0, (), {})
    complete = complete_model(joined, some_photos(60), some_photos(30, 1))
    path = tmp_path_factory.mktemp("pair") / "pair.safetensors"
    write_model(path, complete)
    return read_model(path), members


def logits_of(one, photos):
    predictor = Predictor(one, batch=8)
    try:
        return predictor.predict(photos)["logits"]
    finally:
        predictor.close()


def test_its_logits_are_the_mean_of_theirs():
    members, photos = [model(0), model(1)], some_photos(8, 2).photos
    theirs = [logits_of(one, photos) for one in members]
    assert logits_of(join_models(members), photos) == pytest.approx((theirs[0] + theirs[1]) / 2, abs=1e-4)


def test_a_completed_pair_examines_photos(pair):
    whole, _ = pair
    assert whole.steps
    assert {"rejection", "calibration"} <= set(whole.sections)
    statistics = FeatureStatistics.from_arrays(whole.extra)
    assert statistics.whiten.shape[0] == 48
    assert statistics.whiten.dtype == np.float16
    examiner = Examiner(whole)
    found = examiner.examine(some_photos(1, 4).photos[0])
    examiner.close()
    assert len(found.heats) == 3
    assert found.heats[0].shape == (SIZE, SIZE)
    assert np.isfinite(found.familiarity)
    assert "little+little" in render_card(whole, "Pair")
    assert "(filters in eight bits)" in render_card(whole, "Pair")


def test_it_leaves_as_onnx_and_comes_back_with_the_same_bits(pair, tmp_path):
    whole, _ = pair
    data = to_onnx(whole)
    assert check_onnx(data, whole).version == onnxruntime.__version__
    (tmp_path / "pair.onnx").write_bytes(data)
    back = read_onnx(tmp_path / "pair.onnx")
    folded = fold_weights(whole.graph, whole.weights)
    assert all(np.array_equal(back.weights[name], folded[name]) for name in folded)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (model(1, classes=CLASSES[::-1]), "other classes apart or have them in another order"),
        (model(1, source_side=48), "look at squares of 32 and 48 pixels"),
        (replace(model(1), graph=build("squeezenet1_1", 3, SIZE)), "squeezenet1_1 cannot be joined"),
    ],
)
def test_models_that_do_not_fit_are_refused(other, sentence):
    with pytest.raises(ModelFileError, match=sentence):
        join_models([model(), other])
