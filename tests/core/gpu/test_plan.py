"""The fast plan on a GPU, held against the whole network's reference and against itself; steps, and their memory."""

import numpy as np
import pytest

from core.device import Optimizer, PhotoBatch
from core.errors import InputError
from core.models.architectures import build
from core.ops.builder import with_loss
from core.ops.contract import Mode
from core.ops.photo import BACKGROUND, BACKGROUND_AFFINE, MASK, Backgrounds
from core.optim.optimizer import RULES, initial_state, update
from core.program import fold_batch_norm, fold_weights
from core.training.step import start_step
from tests.helpers.golden import OPTIMIZERS, golden_training
from tests.helpers.gpu_network import batch_for, flattened_network, make_plan, random_weights, rare_network, relative
from tests.helpers.reference_plan import decay_mask, flatten_trained, reference_gradients, reference_values

pytestmark = pytest.mark.gpu

SMALL = (
    "cnn", "mlp", "mobilenetv2", "mobilenetv3_large", "mobilenetv3_small", "squeezenet1_0", "squeezenet1_1",
    "squeezenet1_1_bn", "squeezenet1_1_wide_bn",
)  # fmt: skip


MODE = Mode(training=True, seed=3)


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1", "cnn", "mlp"])
def test_gradients_of_the_whole_network_are_the_references(name):
    _, graph, plan = make_plan(name, "float32")
    weights, batch = random_weights(graph), batch_for(graph, 5)
    got, wanted = plan.gradient(batch), reference_gradients(graph, weights, batch, MODE)
    gradients = plan.gradients()
    assert abs(got.loss - wanted.loss) <= 1e-4 * wanted.loss
    assert got.correct == wanted.correct
    joined = [np.concatenate([g[k].ravel() for k in wanted.gradients]) for g in (gradients, wanted.gradients)]
    assert relative(*joined) < 1e-3


@pytest.mark.parametrize("precision", ["float32", "tf32", "mixed"])
@pytest.mark.parametrize("name", SMALL)
def test_every_step_agrees_with_its_reference(name, precision):
    frozen = ("conv2.weight", "conv2.bias", "dense1.bias") if name == "cnn" else ()
    _, graph, plan = make_plan(name, precision, verify=True, frozen=frozen)
    result = plan.gradient(batch_for(graph, 5))
    assert np.isfinite(result.loss)


@pytest.mark.parametrize("name", SMALL)
def test_predictions_are_the_references(name):
    base, _, plan = make_plan(name, "float32", training=False)
    batch = batch_for(base, 5)
    logits = plan.predict(batch)["logits"]
    wanted = reference_values(base, random_weights(base), batch)[base.output]
    assert logits.shape == wanted.shape
    assert relative(logits, wanted) < 1e-4


@pytest.mark.parametrize("precision", ["float32", "mixed"])
@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenetv2"])
def test_the_same_seed_gives_the_same_bits_and_a_resumed_run_too(name, precision):
    _, graph, plan = make_plan(name, precision, optimizer=Optimizer("adamw", average=0.9, clip_norm=1.0))
    batch = batch_for(graph, 6)
    first = [plan.train_step(batch, 0.01).loss for _ in range(3)]
    kept, state = plan.weights(), plan.state()
    after = [plan.train_step(batch, 0.01).loss for _ in range(3)]
    end = plan.weights()
    _, _, other = make_plan(name, precision, optimizer=Optimizer("adamw", average=0.9, clip_norm=1.0))
    assert [other.train_step(batch, 0.01).loss for _ in range(3)] == first
    other.load(kept)
    other.load_state(state)
    assert [other.train_step(batch, 0.01).loss for _ in range(3)] == after
    again = other.weights()
    assert all(np.array_equal(end[name], again[name]) for name in end)
    assert first[0] != first[-1]


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_the_whole_step_has_the_bits_of_gradient_and_update(precision):
    _, graph, plan = make_plan("squeezenet1_1", precision, optimizer=Optimizer("adamw", average=0.9, clip_norm=1.0))
    weights, batches = random_weights(graph), [batch_for(graph, 6, seed=s) for s in range(3)]
    empty = plan.state()
    whole = [plan.train_step(batch, 0.01) for batch in batches]
    found = plan.weights() | plan.state()
    plan.load(weights)
    plan.load_state(empty)
    apart = []
    for batch in batches:
        apart.append(plan.gradient(batch))
        plan.update(0.01)
    again = plan.weights() | plan.state()
    assert whole == apart
    assert all(np.array_equal(found[name], again[name]) for name in found)


def test_a_step_that_is_not_finite_leaves_the_weights():
    _, graph, plan = make_plan("squeezenet1_1", "float32", optimizer=Optimizer("adamw", average=0.9))
    weights, batch = random_weights(graph), batch_for(graph, 6)
    broken = weights | {"features.0.bias": np.full_like(weights["features.0.bias"], np.inf)}
    plan.load(broken)
    before = plan.state()
    assert not plan.train_step(batch, 0.01).is_finite
    after = plan.weights() | plan.state()
    plan.load(weights)
    assert plan.train_step(batch, 0.01).is_finite
    assert all(np.array_equal(after[name], array) for name, array in (broken | before).items())


def test_missing_photos_of_a_batch_count_nowhere():
    _, graph, plan = make_plan("squeezenet1_1_bn", "float32", batch=6, dropout=0.0)
    _, _, exact = make_plan("squeezenet1_1_bn", "float32", batch=4, dropout=0.0)
    weights, batch = random_weights(graph), batch_for(graph, 4)
    for p in (plan, exact):
        p.load(weights)
        p.gradient(batch_for(graph, p.batch, seed=9))  # leaves other numbers behind
        p.load(weights)
    one, two = plan.gradient(batch), exact.gradient(batch)
    pairs = [(plan.gradients(), exact.gradients()), (plan.weights(), exact.weights())]
    assert one.loss == pytest.approx(two.loss, rel=1e-5)
    for left, right in pairs:
        for name in left:
            if name.endswith("running_var") or name.endswith("running_mean"):
                assert relative(left[name], right[name]) < 1e-4, name


RARE = {"float32": 1e-4, "tf32": 5e-3, "mixed": 5e-2}
"""Limits of logits and gradients of a network of rare layers."""


@pytest.mark.parametrize("network_of", [rare_network, flattened_network])
@pytest.mark.parametrize("precision", sorted(RARE))
def test_networks_of_rare_layers_agree_with_the_reference(precision, network_of):
    from core.gpu.plan import CudaPlan

    base = network_of()
    graph = with_loss(base, 0.1, ())
    weights, batch = random_weights(graph), batch_for(graph, 5)
    plan = CudaPlan(graph, batch=6, training=True, precision=precision, seed=3, verify=True)
    plan.load(weights)
    got, wanted = plan.gradient(batch), reference_gradients(graph, weights, batch, MODE)
    gradients = plan.gradients()
    assert abs(got.loss - wanted.loss) <= RARE[precision] * wanted.loss
    for name, array in wanted.gradients.items():
        assert relative(gradients[name], array) < 10 * RARE[precision], name
    plan = CudaPlan(base, batch=6, training=False, precision=precision)
    plan.load(weights)
    logits = plan.predict(batch)["logits"]
    assert relative(logits, reference_values(base, weights, batch)[base.output]) < RARE[precision]


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_photos_of_any_side_stay_within_the_kernels_memory(precision):
    """A second plan of a process, of sides whose rows of windows end amid a fragment, once read past shared memory."""
    from core.gpu.plan import CudaPlan

    for side in (224, 225, 240, 250):
        base = build("squeezenet1_1_bn", 5, side)
        plan = CudaPlan(fold_batch_norm(base), batch=32, training=False, precision=precision)
        weights = random_weights(base)
        plan.load(fold_weights(base, weights))
        logits = plan.predict(batch_for(base, 7))["logits"]
        assert np.isfinite(logits).all()


@pytest.mark.parametrize("rule", RULES)
def test_the_update_is_the_references(rule):
    optimizer = Optimizer(rule, weight_decay=0.01, clip_norm=0.5, average=0.9)
    _, graph, plan = make_plan("cnn", "float32", optimizer=optimizer)
    batch, layout = batch_for(graph, 6), plan.layout
    now = flatten_trained(random_weights(graph), layout).astype(np.float64)
    state = initial_state(optimizer, now.copy())
    for step in (1, 2, 3):
        plan.gradient(batch)
        gradient = flatten_trained(plan.gradients(), layout).astype(np.float64)
        plan.update(0.01)
        now, state = update(optimizer, now, gradient, state, decay_mask(layout), 0.01, step)
    got = plan.weights()
    for name, (first, shape) in layout.offsets.items():
        assert relative(got[name].ravel(), now[first : first + int(np.prod(shape))]) < 1e-4, name


def test_memory_comes_back_after_each_reset_and_training_goes_on_with_the_same_bits():
    from core.gpu.driver import device

    _, graph, plan = make_plan("squeezenet1_1", "mixed", batch=64)
    batch = batch_for(graph, 64)
    straight = [plan.train_step(batch, 0.01).loss for _ in range(12)]
    plan.load(random_weights(graph))
    plan.load_state({k: np.zeros_like(v) for k, v in plan.state().items()})
    free, losses = [], []
    for _ in range(10):
        losses.append(plan.train_step(batch, 0.01).loss)
        device.reset()
        free.append(device.open_device().memory()[0])
    losses += [plan.train_step(batch, 0.01).loss for _ in range(2)]
    assert losses == straight
    assert max(abs(f - free[0]) for f in free) <= 64 << 20


def test_ten_losses_equal_those_of_pytorch():
    from core.gpu.plan import CudaPlan

    golden, (optimizer, rate) = golden_training("squeezenet1_1"), OPTIMIZERS["sgd"]
    plan = CudaPlan(golden.training_graph, batch=4, training=True, precision="float32", optimizer=optimizer)
    plan.load(golden.weights)
    ours = [plan.train_step(golden.batch(), rate).loss for _ in range(10)]
    assert np.allclose(ours, golden.losses["sgd"], rtol=1e-3)


def test_leaves_stand_on_other_backgrounds_as_on_the_cpu():
    from core.cpu.plan import CpuPlan

    draw = np.random.default_rng(5)
    masks = draw.integers(0, 256, (9, 33, 31), dtype=np.uint8)
    backgrounds = Backgrounds(masks, draw.integers(0, 256, (4, 50, 57, 3), dtype=np.uint8))
    base, graph, plan = make_plan("cnn", "float32", training=False)
    batch = batch_for(base, 5)
    batch.augmentation[:, BACKGROUND], batch.augmentation[:, MASK] = (0, 1, 4, 2, 4), (0, 8, 3, 0, 5)
    batch.augmentation[:, BACKGROUND_AFFINE] = (1.7, 0.3, -2, -0.2, 1.8, 3)
    weights = fold_weights(base, random_weights(base))
    answers = []
    for each in (plan, CpuPlan(graph, batch=6, training=False)):
        each.load(weights)
        each.keep_backgrounds(backgrounds)
        answers.append(each.predict(batch)["logits"])
    assert relative(*answers) < 1e-4
    batch.augmentation[2, BACKGROUND] = 5
    _, _, plan = make_plan("cnn", "float32", training=False)
    plan.keep_backgrounds(backgrounds)
    with pytest.raises(InputError, match="that do not exist"):
        plan.predict(batch)


@pytest.mark.parametrize("size", [6, 4])
def test_streamed_steps_have_the_bits_of_resident_ones(size):
    """Announced, unannounced, wrongly announced, in parts, and of growing photos."""
    _, graph, resident = make_plan("squeezenet1_1_bn", "mixed", batch=size)
    *_, streamed = make_plan("squeezenet1_1_bn", "mixed", batch=size)
    small, large = (batch_for(graph, 24, seed=side, side=side) for side in (70, 90))
    losses = {}
    for plan in (resident, streamed):
        found = []
        for source in (small, large):
            assert plan.keep_photos(source.photos, stream=plan is streamed) == (plan is resident)
            rows = [np.arange(i, i + 6) for i in (0, 6, 12, 18, 3)]
            steps = [
                PhotoBatch(None, source.augmentation[r], source.labels[r], r) if plan is resident
                else PhotoBatch(source.photos[r], source.augmentation[r], source.labels[r]) for r in rows
            ]  # fmt: skip
            nexts = [steps[1], steps[2], None, steps[0], None]
            found += [start_step(plan, step, 0.01, after)() for step, after in zip(steps, nexts, strict=True)]
        losses[plan] = found
    ends = [plan.weights() for plan in (resident, streamed)]
    assert losses[resident] == losses[streamed]
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_in_uneven_parts_is_the_step_of_the_whole_batch(weighted):
    from core.gpu.plan import CudaPlan

    weights = (0.2, 3.0, 1.0, 0.5, 2.0) if weighted else ()
    graph = with_loss(build("squeezenet1_1", 5, 64, dropout=0.4), 0.1, weights)
    given, batch, rate = random_weights(graph), batch_for(graph, 7), 0.01
    batch.labels[2] = -1
    found = []
    for size in (7, 3):
        plan = CudaPlan(graph, batch=size, training=True, optimizer=Optimizer("sgd"), seed=3)
        plan.load(given)
        found.append((start_step(plan, batch, rate)(), plan.weights()))
    (one, whole), (three, parts) = found
    wanted = reference_gradients(graph, given, batch, MODE)
    assert one.loss == pytest.approx(wanted.loss, rel=1e-4)
    assert three.loss == pytest.approx(one.loss, rel=1e-5)
    assert three.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)
    moved = [np.concatenate([(w[n] - given[n]).ravel() for n in given]) for w in (parts, whole)]
    assert relative(*moved) < 1e-3


def test_timing_the_kernels_changes_nothing():
    _, graph, plan = make_plan("squeezenet1_1_bn", "mixed")
    batch = batch_for(graph, 6)
    plan.train_step(batch, 0.01)
    weights, state = plan.weights(), plan.state()
    times = plan.time_kernels(batch)
    after, later = plan.weights(), plan.state()
    assert all(t.milliseconds > 0 for t in times)
    assert all(np.array_equal(weights[name], after[name]) for name in weights)
    assert all(np.array_equal(state[name], later[name]) for name in state)


def test_a_run_takes_the_memory_its_plan_said():
    """Graphs captured, photos on the device; the driver's own figure, to 5 % and what a CUDA context keeps."""
    from core.gpu.driver.device import open_device

    before = open_device().memory()[0]
    _, graph, plan = make_plan("squeezenet1_1", "mixed", batch=4096)
    batch = batch_for(graph, 4096)
    assert plan.keep_photos(batch.photos)
    for _ in range(3):
        plan.train_step(PhotoBatch(None, batch.augmentation, batch.labels, np.arange(4096)), 1e-3)
    taken, said = before - open_device().memory()[0], plan.memory.total
    assert said > 1 << 30
    assert said <= taken <= 1.05 * said
