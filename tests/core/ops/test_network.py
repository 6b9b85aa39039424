"""Whole networks by the reference, against PyTorch: logits, loss, every gradient, running statistics."""

import numpy as np
import pytest

from core.ops.builder import Builder, with_loss
from core.ops.contract import Mode
from core.ops.network import forward, loss_and_gradients
from core.ops.window import read_window, windows
from tests.helpers.compare import assert_close
from tests.helpers.golden import DRAWS, assert_matches, each_network, golden_training


def cast(weights, dtype):
    return {name: array.astype(dtype) for name, array in weights.items()}


@pytest.mark.parametrize("name", each_network())
def test_loss_and_every_gradient_equal_pytorchs(name):
    """In float64; the ops by themselves are tested in float32 too (`test_references`)."""
    golden = golden_training(name)
    weights, inputs = cast(golden.weights, np.float64), golden.inputs(np.float64)
    assert_close(forward(golden.graph, weights, inputs)[golden.graph.output], golden.logits, 1e-10)
    trace = loss_and_gradients(golden.training_graph, weights, inputs, golden.labels)
    assert abs(trace.loss - golden.loss) < 1e-10
    assert trace.correct == (trace.values[golden.graph.output].argmax(-1) == golden.labels).sum()
    golden.assert_gradients(trace.gradients, 1e-9)
    assert trace.updated.keys() == golden.updated.keys()
    for key, wanted in golden.updated.items():
        assert_matches(trace.updated[key], wanted, 1e-10, name=key)


@pytest.mark.parametrize("name", each_network(DRAWS))
def test_no_golden_gradient_hangs_on_rounding(name):
    golden, mode = golden_training(name), Mode(training=True)
    exact, rounded = (
        forward(golden.graph, cast(golden.weights, dtype), golden.inputs(dtype), mode)
        for dtype in (np.float64, np.float32)
    )
    for node in golden.graph.nodes:
        if node.op in ("relu", "max_pool"):
            x = exact[node.inputs[0]]
            error = np.abs(rounded[node.inputs[0]] - x).max()
            assert clearance(node, x) > error, node.name


def clearance(node, x):
    """How far values lie from where the node would take another input. Where a pool takes 0, no gradient passes."""
    if node.op == "relu":
        return np.abs(x).min()
    window = read_window(node.attributes)
    seen = windows(np.maximum(x, 0), window)
    second, first = np.moveaxis(np.partition(seen.reshape(*seen.shape[:4], -1), -2)[..., -2:], -1, 0)
    return (first - second)[first > 0].min()


def small_graph():
    b = Builder("small", (6, 6, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("conv2d", "stem", "photo", filters=4, kernel=(3, 3), padding=(1, 1, 1, 1))
    y = b.add("sigmoid", "sigmoid", b.add("conv2d", "branch", x, filters=4))
    x = b.add("dropout", "dropout", b.add("add", "skip", x, y), rate=0.3, key=5)
    x = b.add("concat", "concat", x, b.add("depthwise_conv2d", "depthwise", x, padding=(1, 1, 1, 1)))
    x = b.add("avg_pool", "pool", x)
    return b.graph(b.add("dense", "dense", b.add("flatten", "flatten", x), units=3))


def test_gradients_of_a_graph_with_forks_match_finite_differences():
    graph = with_loss(small_graph(), 0.1, (1.0, 2.0, 0.5))
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(size=p.shape) * 0.5 for name, p in graph.parameters().items()}
    photos, labels, mode = rng.normal(size=(5, 6, 6, 3)), np.array([0, 2, -1, 1, 1]), Mode(True, seed=2, step=9)
    gradients = loss_and_gradients(graph, weights, photos, labels, mode).gradients
    assert gradients.keys() == weights.keys()
    for name, gradient in gradients.items():
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        values = []
        for sign in (1, -1):
            moved = {**weights, name: weights[name].copy()}
            moved[name][place] += sign * 1e-6
            values.append(loss_and_gradients(graph, moved, photos, labels, mode).loss)
        assert_close((values[0] - values[1]) / 2e-6, gradient[place], 1e-6)


def test_a_loss_without_labels_is_refused_and_a_batch_without_any_label_has_no_loss_and_no_gradient():
    graph = with_loss(small_graph(), 0.0, ())
    weights = {name: np.ones(p.shape) for name, p in graph.parameters().items()}
    with pytest.raises(ValueError, match="needs the labels"):
        forward(graph, weights, np.zeros((1, 6, 6, 3)))
    trace = loss_and_gradients(graph, weights, np.ones((2, 6, 6, 3)), np.array([-1, -1]))
    assert trace.loss == 0
    assert not any(gradient.any() for gradient in trace.gradients.values())
