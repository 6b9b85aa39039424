"""Dense layers of a whole batch at once: the same numbers as photo by photo, for any batch and in parts."""

import pytest

from core.cpu.plan import CpuPlan
from core.cpu.products import is_dense_dominated
from core.graph import PHOTO
from core.models.architectures import build
from core.ops.builder import Builder, with_loss
from core.program import lower
from tests.helpers.compare import assert_close
from tests.helpers.golden import weights_of
from tests.helpers.gpu_network import batch_for
from tests.helpers.reference_plan import reference_gradients, reference_values

SIDE = 6


def _perceptron(units=(37, 70)):
    b = Builder("perceptron", (SIDE, SIDE, 3), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    x = b.add("flatten", "flat", PHOTO)
    for i, count in enumerate(units):
        x = b.add("relu", f"r{i}", b.add("dense", f"d{i}", x, units=count))
    return b.graph(b.add("dense", "last", x, units=5))


def _behind_pool():
    """The dense layer's window is an image of several pixels, channels of a concat among them."""
    b = Builder("behind pool", (SIDE, SIDE, 3), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    p = b.add("max_pool", "p", PHOTO, kernel=(2, 2), stride=(2, 2))
    q = b.add("avg_pool", "q", PHOTO, kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0))
    x = b.add("dense", "d0", b.add("flatten", "flat", b.add("concat", "cat", p, q)), units=40)
    alone = b.add("dense", "d1", b.add("flatten", "flat p", p), units=40)
    return b.graph(b.add("dense", "last", b.add("relu6", "r", b.add("add", "sum", x, alone)), units=5))


def test_only_networks_whose_work_is_in_dense_layers_are_computed_that_way():
    shares = {name: is_dense_dominated(lower(build(name, 10, 32), False)) for name in ("mlp", "cnn", "mobilenetv2")}
    assert shares == {"mlp": True, "cnn": True, "mobilenetv2": False}


@pytest.mark.parametrize("make", [_perceptron, _behind_pool])
@pytest.mark.parametrize(("batch", "count"), [(2, 2), (30, 30), (30, 7), (61, 1)])
def test_gradients_and_logits_agree_for_any_number_of_photos(make, batch, count):
    graph = with_loss(make(), 0.1, ())
    plan = CpuPlan(graph, batch=batch, training=True, threads=2)
    plan.load(weights_of(graph))
    plan.gradient(batch_for(graph, batch, 9))  # what other photos left behind must not be seen
    photos = batch_for(graph, count)
    result = plan.gradient(photos)
    want = reference_gradients(graph, weights_of(graph), photos)
    assert abs(result.loss - want.loss) < 1e-4 * abs(want.loss)
    for name, gradient in want.gradients.items():
        assert_close(plan.gradients()[name], gradient, 1e-4)
    plan = CpuPlan(make(), batch=batch, training=False, threads=2)
    plan.load(weights_of(graph))
    wanted = reference_values(make(), weights_of(graph), photos)[make().output]
    assert_close(plan.predict(photos)["logits"], wanted, 1e-4)
