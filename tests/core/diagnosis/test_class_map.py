import numpy as np
import pytest

from core.diagnosis.features import class_map, enlarge, feature_node, head_node, pool, share_outside_leaf
from core.models import build, initial_weights
from core.ops.network import forward


@pytest.fixture(scope="module", params=["squeezenet1_1", "mobilenetv2"])
def seen(request):
    """A network with its last features and logits on one photo of noise."""
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
        assert class_map(graph, weights, features, index) == pytest.approx(np.maximum(features @ weight, 0))


def test_other_heads_get_grad_cam_by_the_references():
    graph = build("cnn", 4, 32)
    weights = initial_weights(graph, 1)
    photo = np.random.default_rng(1).normal(0, 1, (1, 32, 32, 3)).astype(np.float32)
    features = forward(graph, weights, photo)[feature_node(graph)][0]
    heat = class_map(graph, weights, features, 2)
    assert heat.shape == features.shape[:2]
    assert (heat >= 0).all()
    assert heat.max() > 0


def test_a_network_without_a_map_has_no_feature_node():
    assert feature_node(build("mlp", 3, 16)) is None


def test_enlarged_maps_reach_one_and_empty_ones_stay_empty():
    big = enlarge(np.array([[0.0, 1.0], [2.0, 4.0]]), 32)
    assert (big.shape, big.max(), big[-1, -1]) == ((32, 32), 1, 1)
    assert big[0, 0] == 0
    assert not enlarge(np.zeros((2, 2)), 8).any()


def test_the_share_off_the_leaf_counts_cells_in_part():
    leaf = np.zeros((8, 8), bool)
    leaf[:, :6] = True
    assert share_outside_leaf(np.array([[1.0, 3.0], [0.0, 0.0]]), leaf) == pytest.approx(3 * 0.5 / 4)
    assert share_outside_leaf(np.zeros((2, 2)), leaf) == 0
    assert share_outside_leaf(np.ones((2, 2)), np.zeros((8, 8), bool)) == 0


def test_pooling_averages_over_the_photo():
    assert pool(np.arange(8.0).reshape(1, 2, 2, 2)).tolist() == [[3.0, 4.0]]
