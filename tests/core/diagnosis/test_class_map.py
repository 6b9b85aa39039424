"""Class activation maps: channel weights, cells of a side, and where a map is in the photo."""

from contextlib import closing
from unittest.mock import Mock

import cv2
import numpy as np
import pytest

from core.diagnosis.boxes import WHOLE
from core.diagnosis.class_map import CELLS, MOST_TIMES, ClassMapper, channel_weights, enlarge_network
from core.diagnosis.examination import Examiner
from core.diagnosis.features import feature_node, head_node
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import SHIPPED, SHIPPED_MODELS
from core.errors import InputError
from core.models import build, initial_weights
from core.ops.network import forward
from tests.helpers.models import small_model


@pytest.fixture(scope="module", params=["squeezenet1_1", "mobilenetv2"])
def seen(request):
    graph = build(request.param, 5, 64)
    weights = initial_weights(graph, 0)
    photo = np.random.default_rng(0).normal(0, 1, (1, 64, 64, 3)).astype(np.float32)
    values = forward(graph, weights, photo)
    node = feature_node(graph)
    return graph, weights, values[node][0], values[graph.output][0]


def test_the_map_of_an_averaging_head_sums_to_the_logit(seen):
    graph, weights, features, logits = seen
    head = head_node(graph)
    bias = weights[f"{head.name}.bias"]
    for index in range(5):
        weight = weights[f"{head.name}.weight"][index].reshape(-1)
        evidence = features @ weight + bias[index]
        mean = np.maximum(evidence, 0).mean() if head.op == "conv2d" else evidence.mean()
        assert mean == pytest.approx(float(logits[index]), rel=1e-3, abs=1e-5)
        assert channel_weights(graph, weights, Mock(), index) == pytest.approx(weight)


def test_other_heads_get_grad_cam_by_the_references():
    graph = build("cnn", 4, 32)
    weights = initial_weights(graph, 1)
    photo = np.random.default_rng(1).normal(0, 1, (1, 32, 32, 3)).astype(np.float32)
    features = forward(graph, weights, photo)[feature_node(graph)][0]
    found = channel_weights(graph, weights, lambda: features, 2)
    assert found.shape == features.shape[2:]
    assert np.abs(found).max() > 0


def test_maps_of_the_shipped_models_have_at_least_18_cells_a_side_and_an_mlp_has_none():
    for name in SHIPPED_MODELS:
        graph, node = enlarge_network(read_model(SHIPPED / f"{name}.safetensors").graph)
        assert min(graph.node(node).shape[:2]) >= CELLS == 18, name
    with pytest.raises(InputError, match="no feature map"):
        enlarge_network(build("mlp", 3, 16))


@pytest.mark.parametrize(("network", "side", "times"), [
    ("mobilenetv2", 224, 3), ("mobilenetv2", 32, MOST_TIMES), ("alexnet", 224, 3), ("cnn", 64, 1),
])  # fmt: skip
def test_a_photo_is_enlarged_as_far_as_the_cells_need(network, side, times):
    graph, node = enlarge_network(build(network, 5, side))
    assert graph.photo_shape == (times * side, times * side, 3)
    assert (graph.node(node).shape[0] >= CELLS) == (times < MOST_TIMES)
    assert graph.classes == graph.node(node).shape[2], "the head is not part of it"


@pytest.fixture(scope="module")
def examiner():
    with closing(Examiner(small_model(("a/healthy", "a/scab"), 16))) as examiner:
        yield examiner


def test_a_map_is_of_the_enlarged_photo(examiner):
    model = examiner.model
    with closing(ClassMapper(model)) as mapper:
        photo = np.random.default_rng(0).integers(0, 255, (mapper.side, mapper.side, 3)).astype(np.uint8)
        graph, node = enlarge_network(model.graph)
        mean, deviation = (np.array(graph.nodes[0].attributes[name]) for name in ("mean", "std"))
        large = forward(graph, model.weights, ((photo / 255 - mean) / deviation)[None].astype(np.float32))[node][0]
        own = np.ones(model.graph.node(node).shape, np.float32)
        found = mapper.map_class(photo, lambda: own, 1)
    expected = np.maximum(large @ channel_weights(model.graph, model.weights, lambda: own, 1), 0)
    assert (mapper.side, mapper.cells) == (48, 24)
    assert found.shape == photo.shape[:2]
    assert found == pytest.approx(cv2.resize(expected, found.shape), rel=1e-3, abs=1e-4)


def test_maps_of_several_leaves_are_in_their_boxes_and_of_one_in_the_square(examiner):
    photo = np.random.default_rng(1).integers(0, 255, (60, 90, 3)).astype(np.uint8)
    boxes = ((0.3, -0.2, 0.7, 0.2), (0.3, 0.8, 0.7, 1.2))
    several = examiner.map_class(photo, "a/scab", 40, leaves=boxes)
    whole = examiner.map_class(photo, "a/scab", 40, WHOLE)
    assert several.shape == whole.shape == (40, 40)
    assert several.max() == whole.max() == 1
    assert not several[:, 12:28].any(), "between the leaves"
    assert several[:, :10].any()
