"""Whole networks on the CPU plan against the reference in float64 and PyTorch, and what a plan promises."""

import gc
import weakref
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from core.communicator import SingleProcess
from core.cpu.kernel_entries import ALGORITHMS, PRODUCTS
from core.cpu.plan import CpuPlan
from core.cpu.record_list import group_steps
from core.device import Optimizer, PhotoBatch
from core.errors import DeviceError, InputError, KernelUnavailable, ModelFileError
from core.graph import PHOTO
from core.models.architectures import build
from core.ops.builder import Builder, with_loss
from core.ops.contract import Mode
from core.ops.registry import rank
from core.optim import optimizer as optimizer_reference
from core.plan import compile_plan
from core.program import fold_batch_norm, fold_weights
from core.training.step import start_step
from tests.golden.cases import ON_DEVICES
from tests.helpers import golden as pytorch
from tests.helpers.compare import assert_close
from tests.helpers.golden import weights_of
from tests.helpers.gpu_network import batch_for
from tests.helpers.models import changed
from tests.helpers.reference_plan import decay_mask, flatten_trained, reference_gradients, reference_values

SIZE, CLASSES = 36, 5


def _graph(name, **options):
    return with_loss(build(name, CLASSES, SIZE, **options), 0.1, ())


def _odd_network():
    """Every op, several readers of one value, slices read alone, flattened images, odd channel counts."""
    b = Builder("odd", (19, 17, 3), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    a = b.add("conv2d", "a", PHOTO, filters=7, kernel=(3, 3), stride=(2, 2), padding=(1, 0, 1, 2))
    a = b.add("relu6", "a6", a)
    c = b.add("conv2d", "c", a, filters=10, kernel=(3, 3), padding=(1, 1, 1, 1))
    c = b.add("relu", "cr", c)
    d = b.add("depthwise_conv2d", "d", a, kernel=(3, 3), padding=(1, 1, 1, 1))
    s = b.add("sigmoid", "s", d)
    b.add("relu", "unread", b.add("conv2d", "unused", a, filters=4, kernel=(3, 3), padding=(1, 1, 1, 1)))
    cat = b.add("concat", "cat", c, s)
    e = b.add("conv2d", "e", cat, filters=17, kernel=(1, 1))
    f = b.add("conv2d", "f", c, filters=17, kernel=(2, 2), padding=(0, 1, 1, 0), bias=False)
    g = b.add("add", "g", e, f)
    g = b.add("relu", "gr", g)
    h = b.add("max_pool", "h", g, kernel=(3, 3), stride=(2, 2), ceil_mode=True)
    i = b.add("avg_pool", "i", g, kernel=(3, 3), stride=(2, 2), ceil_mode=True, padding=(0, 0, 0, 0))
    j = b.add("add", "j", h, i)
    k = b.add("dropout", "k", j, rate=0.3, key=2)
    flat = b.add("flatten", "flat", k)
    flat2 = b.add("dropout", "flat2", flat, rate=0.2, key=3)
    m = b.add("dense", "m", flat2, units=9)
    p = b.add("global_avg_pool", "p", j)
    n = b.add("dense", "n", b.add("flatten", "slice", c), units=3)
    q = b.add("concat", "q", m, p, n)
    t = b.add("softmax", "t", q)
    v = b.add("concat", "v", t, flat)
    out = b.add("relu", "out", b.add("dense", "logits", v, units=CLASSES))
    return with_loss(b.graph(out), 0.0, (1.0, 2.0, 0.5, 1.0, 3.0))


NETWORKS = {
    "squeezenet1_1": lambda: _graph("squeezenet1_1", dropout=0.5),
    "squeezenet1_1_bn": lambda: _graph("squeezenet1_1_bn", dropout=0.0),
    "mobilenetv3_small": lambda: _graph("mobilenetv3_small", dropout=0.0),
    "mobilenetv2_frozen": lambda: changed(_graph("mobilenetv2", dropout=0.2), "batch_norm", frozen=True),
    "cnn": lambda: _graph("cnn"),
    "mlp": lambda: _graph("mlp", activation="sigmoid"), "odd": _odd_network,
    "targets": lambda: with_loss(build("squeezenet1_1", CLASSES, SIZE, dropout=0.3), 0.0, (), targets=True),
    "targets_weighted": lambda: with_loss(build("cnn", CLASSES, SIZE), 0.0, (0.2, 3.0, 1.0, 0.0, 2.0), targets=True),
    "targets_multi": lambda: with_loss(build("cnn", CLASSES, SIZE), 0.0, (), multi=True),
}  # fmt: skip


@pytest.mark.parametrize(("threads", "algorithm"), [(1, "auto"), (2, "auto"), (5, "auto"), (2, "naive"), (2, "im2col")])
@pytest.mark.parametrize("name", NETWORKS)
def test_loss_and_gradients_agree_with_the_reference(name, threads, algorithm):
    """More threads than photos, too; a depthwise convolution has no im2col."""
    graph = NETWORKS[name]()
    batch = batch_for(graph, 3, seed=3)  # with seed 1, rounding decides what a pool takes
    if name == "odd":
        batch.labels[1] = -1
    if name.startswith("targets"):
        batch = replace(batch, targets=np.random.default_rng(2).dirichlet(np.ones(CLASSES), 3).astype(np.float32))
    weights = weights_of(graph)
    plan = CpuPlan(graph, batch=4, training=True, seed=5, threads=threads, algorithm=algorithm)
    chosen = {step.node for step in plan.program.steps if step.op in PRODUCTS}  # steps that have a choice
    used = {kernel for layer, _, kernel in plan.kernels() if layer in chosen} - {"border", "fused"}
    assert algorithm == "auto" or max(used, key=rank) == algorithm
    plan.load(weights)
    result = plan.gradient(batch)
    want = reference_gradients(graph, weights, batch, Mode(True, 5))
    assert abs(result.loss - want.loss) < 1e-4 * abs(want.loss)
    assert (result.correct, result.photos) == (want.correct, 3)
    got = plan.gradients()
    assert not any(got[key].any() for key in got.keys() - want.gradients.keys())
    for key, gradient in want.gradients.items():
        if np.abs(gradient).max() > 1e-6:  # a bias before a batch norm has no gradient but rounding
            assert_close(got[key], gradient, 1e-3)
    for key, new in want.updated.items():
        assert_close(plan.weights()[key], new, 1e-4)
    flat = np.concatenate([g.ravel() for g in want.gradients.values()])
    assert abs(result.gradient_norm / np.linalg.norm(flat) - 1) < 1e-3


@pytest.mark.parametrize(("classes", "size", "count", "name"), [
    *product((CLASSES,), (SIZE,), (1, 3), ("squeezenet1_1", "squeezenet1_1_bn", "mobilenetv2")),
    *product((1000,), (224,), (2,), ("squeezenet1_0", "squeezenet1_1", "mobilenetv2", "mobilenetv3_small",
                                     "mobilenetv3_large")),
])  # fmt: skip
def test_inference_agrees_with_the_reference_on_the_unfolded_network(classes, size, count, name):
    graph = build(name, classes, size)
    weights, batch = weights_of(graph), batch_for(graph, count)
    folded = fold_batch_norm(graph)
    kept = next(node.name for node in folded.nodes if node.op in ("relu", "relu6"))
    plan = CpuPlan(folded, batch=3, training=False, outputs=(kept,))
    assert set(np.diff(group_steps(plan.program))) <= {0, 1}
    assert plan.memory.gradients == 0
    plan.load(fold_weights(graph, weights))
    got = plan.predict(batch)
    want = reference_values(graph, weights, batch)
    assert_close(got["logits"], want[graph.output], 1e-4)
    assert_close(got[kept], want[kept], 1e-4)


@pytest.mark.parametrize("name", pytorch.TRAINING)
def test_loss_gradients_and_running_statistics_agree_with_pytorch(name):
    golden = pytorch.golden_training(name)
    plan = CpuPlan(golden.training_graph, batch=4, training=True)
    plan.load(golden.weights)
    result = plan.gradient(golden.batch())
    assert abs(result.loss - golden.loss) < 1e-4 * golden.loss
    golden.assert_gradients(plan.gradients())
    for key, wanted in golden.updated.items():
        pytorch.assert_matches(plan.weights()[key], wanted, 1e-4, name=key)


@pytest.mark.parametrize("optimizer", ON_DEVICES, ids=lambda optimizer: optimizer.name)
def test_updates_agree_with_the_reference_and_leave_frozen_parameters(optimizer):
    graph = _graph("cnn")
    frozen = [name for name in graph.parameters()][:2]
    plan = CpuPlan(graph, batch=2, training=True, optimizer=optimizer, frozen=frozen)
    plan.load(weights_of(graph))
    layout, decayed = plan.layout, decay_mask(plan.layout)
    flat = flatten_trained(plan.weights(), layout)
    state = optimizer_reference.initial_state(optimizer, flat)
    learns = flatten_trained({n: np.full(s, n not in frozen) for n, (_, s) in layout.offsets.items()}, layout) > 0
    for step in range(1, 4):
        plan.gradient(batch_for(graph, 2, step))
        gradient = flatten_trained(plan.gradients(), layout)
        assert not gradient[~learns].any()
        plan.update(0.01)
        flat, state = optimizer_reference.update(optimizer, flat, gradient, state, decayed & learns, 0.01, step)
        assert_close(flatten_trained(plan.weights(), layout), flat, 1e-6)
        for name, array in state.items():
            assert_close(plan.state()[name], array, 1e-5)
    assert plan.state()["step"] == 3


@pytest.mark.parametrize("name", ["squeezenet1_1", "squeezenet1_1_bn"])
def test_same_seed_and_threads_give_the_same_bits_and_a_resumed_run_too(name):
    graph = _graph(name)

    def start():
        plan = CpuPlan(graph, batch=5, training=True, optimizer=Optimizer("adamw", average=0.9), seed=1, threads=2)
        plan.load(weights_of(graph))
        return plan

    first, second = start(), start()
    for step in range(3):
        assert first.train_step(batch_for(graph, 5, step), 1e-3) == second.train_step(batch_for(graph, 5, step), 1e-3)
    resumed = start()
    resumed.load(first.weights())
    resumed.load_state(first.state())
    first.train_step(batch_for(graph, 4, 9), 1e-3)
    resumed.train_step(batch_for(graph, 4, 9), 1e-3)
    for name, array in first.weights().items():
        assert np.array_equal(array, resumed.weights()[name]), name
    for name, array in first.state().items():
        assert np.array_equal(array, resumed.state()[name]), name


@pytest.mark.parametrize("weights", [(), (0.2, 3.0, 1.0, 0.5, 2.0)])
@pytest.mark.parametrize("name", ["squeezenet1_1", "mlp"])
def test_a_step_in_uneven_parts_is_the_step_of_the_whole_batch(name, weights):
    graph = with_loss(build(name, CLASSES, SIZE, dropout=0.3), 0.1, weights)
    whole, parts = (CpuPlan(graph, batch=size, training=True, optimizer=Optimizer("sgd")) for size in (4, 3))
    batch = batch_for(graph, 4)
    batch.labels[2] = -1
    for plan in (whole, parts):
        plan.load(weights_of(graph))
    one, two = (start_step(plan, batch, 0.1)() for plan in (whole, parts))
    assert (two.loss, two.gradient_norm) == pytest.approx((one.loss, one.gradient_norm), rel=1e-4)
    assert (two.photos, two.correct) == (one.photos, one.correct)
    for name, array in whole.weights().items():
        assert_close(parts.weights()[name], array, 1e-5)


def test_what_cannot_be_done_is_refused_with_a_sentence():
    graph = build("cnn", CLASSES, SIZE)
    for wrong, sentence in (
        ({"precision": "tf32"}, "tf32 needs --device"), ({"precision": "half"}, "no precision 'half'. Choose one of"),
        ({"outputs": ("conv9",)}, "cnn has no conv9"), ({"frozen": ("conv1",)}, "cnn has no conv1"),
        ({"training": True}, "without a loss cannot be trained"), ({"frozen": ("conv2.weight",)}, "conv2.bias: a bias"),
    ):  # fmt: skip
        with pytest.raises((DeviceError, InputError), match=sentence):
            compile_plan(graph, **wrong)
    with pytest.raises(KernelUnavailable, match=f"no algorithm 'winograd'.*{', '.join(ALGORITHMS)}"):
        CpuPlan(graph, batch=1, training=False, algorithm="winograd")
    plan = CpuPlan(graph, batch=2, training=False)
    weights = weights_of(graph)
    broken = {**weights, "more": np.zeros(1)}
    name = next(iter(weights))
    broken[name] = np.zeros((1, 2))
    del broken[list(weights)[-1]]
    with pytest.raises(ModelFileError, match=rf"missing.*more.*{name} is .*\(1, 2\)"):
        plan.load(broken)
    plan.load(weights)
    good = batch_for(graph, 2)
    for broken, sentence in (
        (batch_for(graph, 3), "1 to 2 photos"),
        (PhotoBatch(good.photos[:1], good.augmentation, good.labels), "1 photos for 2 transforms"),
        (replace(good, photos=good.photos / 255), "are not .photos, height, width, 3. of uint8"),
        (PhotoBatch(good.photos, good.augmentation * np.nan, good.labels), "finite"),
        (PhotoBatch(good.photos, good.augmentation, good.labels[:1]), "1 labels for 2 photos"),
        (PhotoBatch(good.photos, good.augmentation, good.labels, np.array([0, 2])), "are not within 0 to 1"),
        (PhotoBatch(None, good.augmentation, good.labels), "keep_photos"),
    ):
        with pytest.raises(InputError, match=sentence):
            plan.predict(broken)


def test_a_batch_that_does_not_fit_the_loss_is_refused():
    graphs = [with_loss(build("cnn", CLASSES, SIZE), 0.0, (), targets) for targets in (True, False)]
    taught, plain = (CpuPlan(graph, batch=3, training=True, verify=True) for graph in graphs)
    for plan in (taught, plain):
        plan.load(weights_of(plan.program.graph))
    batch = replace(batch_for(graphs[0], 3), targets=np.full((3, CLASSES), 1 / CLASSES, np.float32))
    assert np.isfinite(taught.gradient(batch).loss)
    for plan, given, sentence in (
        (taught, replace(batch, targets=None), r"learns from targets of \(3, 5\) numbers, not from labels alone"),
        (taught, replace(batch, targets=batch.targets[:, :-1]), r"targets of \(3, 5\) numbers, not from \(3, 4\)"),
        (plain, batch, "learns from labels alone"),
        (plain, replace(batch, targets=None, labels=np.array([0, 5, 1])), "a label is 5, but the classes .* 0 to 4"),
    ):
        with pytest.raises(InputError, match=sentence):
            plan.gradient(given)


def test_photos_are_borrowed_or_kept_and_taken_by_index():
    graph = build("squeezenet1_1", CLASSES, SIZE)
    owner, other = (CpuPlan(graph, batch=3, training=False) for _ in range(2))
    other.load(weights_of(graph))
    batch = batch_for(graph, 2)
    photos = np.concatenate((batch.photos, batch.photos[:, ::-1], batch.photos[:, :, ::-1]))
    owner.keep_photos(photos)
    other.borrow_photos(owner)
    said = other.predict(replace(batch, photos=None, index=np.array([4, 1], np.int32)))["logits"]
    assert said.tobytes() == other.predict(replace(batch, photos=photos[[4, 1]]))["logits"].tobytes()
    assert other.keep_photos(photos[::-1])
    kept = other.predict(replace(batch, photos=None, index=np.array([1, 4], np.int32)))["logits"]
    assert said.tobytes() == kept.tobytes()


def test_memory_is_what_was_promised_and_goes_with_close():
    plan = CpuPlan(_graph("squeezenet1_1"), batch=4, training=True, optimizer=Optimizer("adam", average=0.9), threads=2)
    arrays = [plan._weights, plan._gradient, plan._private, plan._arena, *plan._lowering.arrays]
    arrays += plan._optimizer.arrays.values()
    assert sum(a.nbytes for a in arrays) == pytest.approx(plan.memory.total, rel=0.05)
    arena = weakref.ref(plan._arena)
    del arrays
    plan.close()
    gc.collect()
    assert arena() is None


def test_a_loss_that_is_not_finite_is_seen():
    graph = _graph("squeezenet1_1")
    plan = CpuPlan(graph, batch=2, training=True)
    weights = weights_of(graph)
    weights["features.0.weight"][0, 0, 0, 0] = np.nan
    plan.load(weights)
    result = plan.gradient(batch_for(graph, 2))
    assert not np.isfinite(result.loss)
    assert not np.isfinite(result.gradient_norm)


@pytest.mark.parametrize("name", ["squeezenet1_1_bn", "cnn"])
def test_every_kernel_is_timed_and_listed(name):
    graph = _graph(name)
    plan = CpuPlan(graph, batch=2, training=True)
    plan.load(weights_of(graph))
    before = plan.weights()
    times = plan.time_kernels(batch_for(graph, 2))
    assert [(t.layer, t.direction, t.kernel) for t in times] == plan.kernels()
    assert {t.flops for t in times if t.kernel == "border"} == {0}  # it clears memory and does no layer's arithmetic
    done = Counter()
    for t in times:
        done[t.layer, t.direction] += t.flops
    for step in plan.program.steps:
        passes = {t.direction for t in times if t.layer == step.node and t.kernel != "border"}
        assert {done[step.node, direction] for direction in passes} == {2 * step.cost.flops}, step.node
    assert all(t.milliseconds > 0 for t in times)
    assert all(np.array_equal(plan.weights()[n], a) for n, a in before.items())


class TwoRanks(SingleProcess):
    """Ranks that compute the same."""

    def gather(self, content):
        return [content, content]


def test_a_part_that_no_rank_has_photos_of_leaves_synchronized_statistics_finite():
    graph = with_loss(build("squeezenet1_1_bn", 5, 32), 0.0, ())
    plan = CpuPlan(graph, batch=2, training=True, threads=1, communicator=TwoRanks(size=2), sync_batch_norm=True)
    plan.load(weights_of(graph))
    plan.gradient(replace(batch_for(graph, 1), labels=np.array([-1], np.int32), step_labels=np.zeros(4, np.int32)))
    assert all(np.isfinite(array).all() for array in plan.weights().values())
