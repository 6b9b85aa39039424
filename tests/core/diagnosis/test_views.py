"""Two views of a photo: every output is the mean over the photo and its mirror image, held against float64."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import cv2
import numpy as np
import pytest

from core.diagnosis.calibration import scale_logits, state_probabilities
from core.diagnosis.completion import LabelledPhotos, compute_outputs
from core.diagnosis.examination import Examiner
from core.diagnosis.features import feature_node
from core.diagnosis.int8_model import measure_quantisation_loss, measure_ranges, quantise_model
from core.diagnosis.metrics import softmax
from core.diagnosis.onnx_model import check_onnx, metadata_of, prepare, to_onnx
from core.diagnosis.prediction import Predictor, average_views
from core.onnx.runtime import compute_output
from core.ops.network import forward
from tests.helpers.compare import assert_close, relative_error
from tests.helpers.models import predict, small_model
from tests.helpers.noise import integers


def model(name="cnn", side=17, views=2, temperatures=()):
    return small_model(side=side, network=name, seed=4, temperature=1.3, views=views, class_temperatures=temperatures,
                       offset=0.4 if temperatures else 0.0)


def squares(count, side):
    return integers("views", (count, side, side, 3), 0, 256).astype(np.uint8)


def reference(one, photos):
    """Logits and feature maps of each view by the reference ops in float64; photos have the network's side."""
    photo = one.graph.nodes[0].attributes
    weights = {name: array.astype(np.float64) for name, array in one.weights.items()}
    found = []
    for shown in (photos, photos[:, :, ::-1]):
        x = (shown / 255.0 - np.array(photo["mean"])) / np.array(photo["std"])
        values = forward(one.graph, weights, x)
        found.append((values[one.graph.output], values[feature_node(one.graph)]))
    assert found[0][0].dtype == np.float64
    return found


@pytest.mark.parametrize("name", ["cnn", "squeezenet1_1", "mobilenetv2"])
@pytest.mark.parametrize("batch", [1, 2, 8])
def test_every_output_is_the_mean_of_both_views_and_maps_are_turned_back(name, batch):
    one = model(name, 33)
    photos, node = squares(5, 33), feature_node(one.graph)
    (plain, plain_map), (mirrored, mirrored_map) = reference(one, photos)
    assert relative_error(plain, mirrored) > 1e-2, "views that say the same would prove nothing"
    got = predict(one, photos, batch=batch, outputs=(node,))
    assert_close(got["logits"], (plain + mirrored) / 2, 1e-4)
    assert_close(got[node], (plain_map + mirrored_map[:, :, ::-1]) / 2, 1e-4)


def test_threads_that_share_a_predictor_get_the_outputs_of_their_photos():
    photos = squares(8, 33)
    with closing(Predictor(model("squeezenet1_1", 33))) as predictor, ThreadPoolExecutor(4) as pool:
        wanted = [predictor.predict(photo[None])["logits"] for photo in photos]
        got = pool.map(lambda i: predictor.predict(photos[i % 8][None])["logits"], range(80))
        assert all(np.array_equal(logits, wanted[i % 8]) for i, logits in enumerate(got))


@pytest.mark.parametrize("side", [1, 16, 17, 23, 40])
def test_a_photo_of_any_side_and_its_mirror_image_get_the_same_answer(side):
    photos = squares(3, side)
    got, turned, *each = (predict(model(views=views), shown, batch=2)["logits"] for views in (2, 1)
                          for shown in (photos, photos[:, :, ::-1]))  # fmt: skip
    assert got.tobytes() == turned.tobytes()
    assert_close(got, (each[0].astype(np.float64) + each[1]) / 2, 1e-6)


def test_a_view_that_is_no_number_makes_no_number():
    answers = np.ones((4, 3), np.float32)
    answers[1, 2], answers[:2, 1] = np.nan, 3e38  # whose sum overflows without a warning
    assert np.isfinite(average_views(answers, 2)[0]).tolist() == [True, False, False]
    assert np.isfinite(average_views(answers, 2)[1]).all()


@pytest.mark.parametrize("temperatures", [(), (4.0, 4.0, 0.25), (0.25, 0.25, 4.0)])
def test_diagnosis_evaluation_and_examination_say_the_same(tmp_path, temperatures):
    one, photos = model("squeezenet1_1", 33, temperatures=temperatures), squares(3, 33)
    (plain, _), (mirrored, _) = reference(one, photos)
    wanted = softmax(scale_logits((plain + mirrored) / 2, one.temperature, temperatures, one.offset))
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for path, photo in zip(paths, photos, strict=True):
        cv2.imwrite(path, photo[..., ::-1])
    with closing(Predictor(one, batch=2)) as predictor, closing(Examiner(one)) as examiner:
        said = [guess.probability for found in predictor.diagnose(paths) for guess in found.top]
        examined = [examiner.examine(photo, crop=False).prediction.probabilities for photo in photos]
        answered = [answer.probabilities for answer in predictor.predict_calibrated(photos)]
        seen, stated = compute_outputs(predictor, photos).logits, predictor.probabilities(photos)
    assert_close(np.reshape(said, (3, 3)), -np.sort(-wanted, axis=1), 1e-4)
    for got in (examined, answered, stated, state_probabilities(one, seen)):
        assert_close(np.array(got), wanted, 1e-4)


def test_onnx_answers_one_view_and_says_how_answers_become_probabilities():
    two, one = model(temperatures=(4.0, 4.0, 0.25)), model(views=1)
    assert (metadata_of(two)["views"], metadata_of(one)["views"]) == ("2", "1")
    assert not {"class_temperatures", "offset"} & metadata_of(one).keys()
    data, squares_of_noise = to_onnx(two), squares(1, 17)
    assert check_onnx(data, two)[1] < 1e-4
    photo = prepare(two.graph, squares_of_noise)
    both = np.concatenate((photo, photo[:, :, ::-1]))  # as docs/training.md says
    logits = compute_output(data, both).mean(axis=0)
    assert_close(logits, predict(two, squares_of_noise)["logits"][0], 1e-4)
    told, top = metadata_of(two), logits.argmax()
    scaled = logits / json.loads(told["class_temperatures"])[top]
    scaled[top] = max(scaled[top] - float(told["offset"]), np.delete(scaled, top).max() + 1e-6)
    assert_close(softmax(scaled[None]), state_probabilities(two, logits[None]), 1e-5)


def test_eight_bits_are_ranged_and_judged_on_both_views():
    two = model()
    photos = squares(6, 17)
    mirrored = measure_ranges(replace(two, views=1), np.ascontiguousarray(photos[:, :, ::-1]))
    plain, both = measure_ranges(replace(two, views=1), photos), measure_ranges(two, photos)
    assert plain != mirrored
    for name, (low, high) in both.items():
        assert low == pytest.approx(min(plain[name][0], mirrored[name][0]), rel=1e-5)
        assert high == pytest.approx(max(plain[name][1], mirrored[name][1]), rel=1e-5)
    labels = np.zeros(6, np.int64)
    quantised = quantise_model(two, LabelledPhotos(photos, labels))
    loss = measure_quantisation_loss(quantised, two, LabelledPhotos(photos, labels))
    turned = measure_quantisation_loss(quantised, two, LabelledPhotos(np.ascontiguousarray(photos[:, :, ::-1]), labels))
    assert loss == turned
