"""The host's side of the GPU plan, on a pretended driver: memory, state, batches, graphs, errors."""

from dataclasses import replace

import numpy as np
import pytest

from core.device import Optimizer, PhotoBatch
from core.errors import InputError, KernelUnavailable, ModelFileError, OutOfMemory
from core.gpu.compilation.cuda import driver as real
from core.gpu.control import Settings, find_offsets
from core.gpu.driver import device
from core.gpu.driver.memory import BEHIND
from core.gpu.hardware import typical
from core.gpu.ops.elementwise import combine
from core.gpu.plan import CudaPlan
from core.gpu.staging import Buffer
from core.models.architectures import build
from core.ops.builder import Builder, with_loss
from core.ops.photo import Backgrounds
from core.training.step import start_step
from tests.core.gpu.test_lowering import lowered
from tests.helpers.gpu_network import batch_for, flattened_network, random_weights
from tests.helpers.pretended_gpu import pretend

pytestmark = pytest.mark.usefixtures("driver")


def training_plan(name="cnn", size=28, rule="adamw", precision="mixed", batch=6, **more):
    graph = with_loss(build(name, 5, size), 0.1, ())
    optimizer = Optimizer(rule, average=0.9)
    plan = CudaPlan(graph, batch=batch, training=True, precision=precision, optimizer=optimizer, **more)
    plan.load(random_weights(graph))
    return graph, plan


def test_weights_and_state_restore_as_they_went_in(driver):
    graph, plan = training_plan("squeezenet1_1_bn", 64)
    weights = random_weights(graph)
    state = plan.state()
    assert set(state) == {"first", "second", "average", "step"}
    changed = {k: v + 1 if v.ndim else np.array(7) for k, v in state.items()}
    plan.load_state(changed)
    again = plan.state()
    got = plan.weights()
    plan.close()
    assert all(np.array_equal(again[k], changed[k]) for k in state)
    assert all(np.array_equal(got[k], weights[k]) for k in weights)
    assert not driver.blocks


def test_a_step_is_captured_once_and_then_replayed(driver):
    graph, plan = training_plan()
    batch = batch_for(graph, 5)
    plan.train_step(batch, 0.1)
    launches = driver.launches
    for _ in range(3):
        plan.train_step(batch, 0.1)
    assert (driver.launches, driver.replays) == (launches, 4)
    assert plan._lists["accumulate"][0] == plan._lists["gradient"][0], "with the same addresses"
    assert int(plan.state()["step"]) == 4


def test_a_reset_empties_the_device_and_brings_the_plan_back(driver, monkeypatch):
    graph, plan = training_plan(rule="sgd")
    weights, batch = random_weights(graph), batch_for(graph, 6)
    assert plan.keep_photos(batch.photos)
    plan.train_step(batch, 0.1)
    seen, restore = [], CudaPlan.restore
    monkeypatch.setattr(CudaPlan, "restore", lambda plan: (seen.append(len(driver.blocks)), restore(plan)))
    device.reset()
    assert seen == [0]
    assert int(plan.state()["step"]) == 1
    assert all(np.array_equal(plan.weights()[k], weights[k]) for k in weights)
    plan.train_step(PhotoBatch(None, batch.augmentation, batch.labels, np.arange(6)), 0.1)


@pytest.mark.parametrize("verify", [False, True])
def test_a_batch_too_large_is_refused_with_the_one_that_fits(verify, monkeypatch):
    driver = pretend(monkeypatch, memory=1 << 30)
    with pytest.raises(OutOfMemory, match=r"A batch of 4096 photos needs .* GiB") as caught:
        training_plan("squeezenet1_0", 224, batch=4096, verify=verify)
    assert not driver.blocks
    fits = int(str(caught.value).split("A batch of ")[-1].split()[0])
    _, plan = training_plan("squeezenet1_0", 224, batch=fits, verify=verify)
    assert plan.memory.total <= 1 << 30
    plan.close()
    with pytest.raises(OutOfMemory):
        training_plan("squeezenet1_0", 224, batch=fits + 1, verify=verify)


def test_announced_photos_travel_while_the_step_before_them_computes(driver, monkeypatch):
    graph, plan = training_plan()
    batches = [batch_for(graph, 6, seed=seed) for seed in range(5)]
    first = batches[0].photos
    plan.gradient(batches[0])
    staging, seen = plan._staging, []

    def on_device(buffer, photos):
        held = driver.blocks[buffer.block.address][: photos.nbytes]
        return np.array_equal(held, photos.ravel())

    def launch(graph, stream):
        current = staging._buffers[staging._next - 1]
        address = plan._settings.source.address
        seen.append([address == current.block.address, *(on_device(current, b.photos) for b in batches)])
        return (real.CUresult.CUDA_SUCCESS,)

    driver.cuGraphLaunch = launch
    sent = []
    copy = Buffer.send
    monkeypatch.setattr(Buffer, "send", lambda self, photos, stream: (sent.append(photos), copy(self, photos, stream)))
    order = [batches[i] for i in (1, 2, 3, 3, 4)]
    for batch, following in zip(order, [batches[2], batches[3], batches[0], None, None], strict=True):
        plan.announce(following)
        plan.gradient(batch)
        if following is not None:  # it is there before its own step begins
            assert on_device(staging._buffers[staging._next], following.photos)
    plan.close()
    assert [row[0] for row in seen] == [True] * 5
    assert [row.index(True, 1) - 1 for row in seen] == [1, 2, 3, 3, 4]
    expected = [batches[i].photos for i in (1, 2, 3, 0, 3, 4)]  # each once, but for one that came unannounced
    assert len(sent) == len(expected)
    assert all(a is b for a, b in zip(sent, expected, strict=True))
    assert first is not batches[1].photos
    assert not driver.blocks


def test_an_announced_batch_is_checked_once_before_its_step(monkeypatch):
    graph, plan = training_plan()
    first, second = batch_for(graph, 6, seed=0), batch_for(graph, 6, seed=1)
    wrong, checked, check = replace(first, labels=first.labels[:5]), [], PhotoBatch.check
    monkeypatch.setattr(PhotoBatch, "check", lambda *given: (checked.append(given[0]), check(*given))[1])
    for batch, following in ((first, second), (second, wrong)):
        plan.announce(following)
        plan.gradient(batch)
        assert checked[-1] is following
    with pytest.raises(InputError, match="5 labels for 6 photos"):
        plan.gradient(wrong)
    assert [id(batch) for batch in checked] == [id(batch) for batch in (first, second, wrong, wrong)]
    plan.keep_photos(first.photos)
    plan.announce(second)
    plan.gradient(first)
    plan.keep_photos(second.photos)  # checked with the photos before these
    plan.gradient(second)
    assert len(checked) == 7


def test_photos_that_do_not_fit_are_streamed_and_counted(monkeypatch):
    driver = pretend(monkeypatch, memory=400 << 20)
    graph, plan = training_plan()
    free = driver.cuMemGetInfo()[1]
    photos = np.broadcast_to(np.zeros((1, 32, 32, 3), np.uint8), (free // 3072, 32, 32, 3))
    before = plan.memory.total
    assert not plan.keep_photos(photos)
    assert plan.memory.photos == 3 * 6 * 3072
    taken = 3 * (2 * 6 * 3072 + BEHIND)  # the pretended driver counts pinned memory too
    assert driver.cuMemGetInfo()[1] == free - taken
    assert plan.memory.total == before + plan.memory.photos
    assert plan.keep_photos(np.zeros((4, 32, 32, 3), np.uint8))
    assert not plan.keep_photos(np.zeros((4, 32, 32, 3), np.uint8), stream=True)


def test_the_largest_batch_that_fits_is_taken_where_none_is_asked_for(monkeypatch):
    from core.config import RunConfig
    from core.training.training_plan import AUTO_BATCH, compile_fitting

    pretend(monkeypatch, memory=2 << 30)
    graph = with_loss(build("squeezenet1_0", 10, 224), 0.0, ())
    plan, batch = compile_fitting(RunConfig(batch_size=0, accumulate=1), graph, "cuda", 10**6)
    assert plan.batch == batch < AUTO_BATCH["cuda"]
    plan.close()
    with pytest.raises(OutOfMemory):
        compile_fitting(RunConfig(batch_size=2 * batch), graph, "cuda", 10**6)
    parts, whole = compile_fitting(RunConfig(batch_size=2 * batch, accumulate=2), graph, "cuda", 10**6)
    assert (parts.batch, whole) == (batch, 2 * batch)


def test_wrong_weights_states_and_batches_meet_sentences():
    graph, plan = training_plan()
    weights = random_weights(graph)
    with pytest.raises(ModelFileError, match=r"conv1\.bias is missing"):
        plan.load({k: v for k, v in weights.items() if k != "conv1.bias"})
    with pytest.raises(ModelFileError, match="'first'"):
        plan.load_state({"step": np.array(1)})
    batch = batch_for(graph, 6)
    with pytest.raises(InputError, match="keep_photos"):
        plan.gradient(PhotoBatch(None, batch.augmentation, batch.labels, np.arange(6)))
    with pytest.raises(InputError, match="1 to 6 photos"):
        plan.gradient(batch_for(graph, 7))
    with pytest.raises(InputError, match="inference"):
        plan.predict(batch)


def test_every_launch_has_a_time_and_a_name():
    graph, plan = training_plan("mobilenetv2", 64, precision="float32")
    times = plan.time_kernels(batch_for(graph, 6))
    assert {t.direction for t in times} == {"forward", "backward_input", "backward_weight", "update"}
    assert all(t.milliseconds > 0 for t in times)
    assert {(t.layer, t.direction, t.kernel) for t in times} <= set(plan.kernels())


def test_a_batch_of_one_part_is_one_replay_of_the_whole_step(driver):
    graph, plan = training_plan()
    for number in (1, 2):
        start_step(plan, batch_for(graph, 6), 0.1)()
        assert driver.replays == number
    start_step(plan, batch_for(graph, 11), 0.1)()
    assert driver.replays == 2 + 3


def test_a_step_that_is_not_finite_does_not_count():
    graph, plan = training_plan()
    plan._report.array[:32].view(np.float32)[:] = [np.nan, 0, 1, 0] * 2
    assert not plan.train_step(batch_for(graph, 6), 0.1).is_finite
    assert int(plan.state()["step"]) == 0


def test_two_steps_that_are_queued_keep_their_labels_photos_and_results_apart(driver):
    graph, plan = training_plan()
    batches = [batch_for(graph, 6, seed=seed) for seed in range(3)]
    waits = []
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        plan.announce(following)
        waits.append(plan.start_step(batch, 0.1))
    at = find_offsets(6)
    for slot, batch in zip((0, 1), (batches[1], batches[2]), strict=True):  # the copies may still be under way
        raw = plan._staging._pinned[slot].array
        assert np.array_equal(raw[at.labels :][:24].view(np.int32), batch.labels)
        photos = driver.blocks[Settings.from_buffer(raw.data).source.address]
        assert np.array_equal(photos[: batch.photos.nbytes], batch.photos.ravel())
        plan._report.array[16 * slot :][:12].view(np.float32)[:] = slot + 1, 0, 1
    assert [wait().loss for wait in waits[1:]] == [1, 2]
    assert int(plan.state()["step"]) == 3


def test_targets_lie_where_the_loss_reads_them_at_every_replay(driver):
    graph = with_loss(build("cnn", 5, 28), 0.0, (), targets=True)
    plan = CudaPlan(graph, batch=6, training=True)
    plan.load(random_weights(graph))
    (head,) = [launch for launch in plan._lists["step"] if launch.recipe.factory == "make_head"]
    assert head.recipe.constants[1:] == ("targets",)
    batch, address = batch_for(graph, 4), head.values[5]
    start, block = next((a, b) for a, b in driver.blocks.items() if a <= address < a + b.nbytes)
    for seed in (0, 1):
        targets = np.random.default_rng(seed).dirichlet(np.ones(5), 4).astype(np.float32)
        plan.train_step(replace(batch, targets=targets), 0.1)
        assert np.array_equal(block[address - start :][:80].view(np.float32).reshape(4, 5), targets)
    with pytest.raises(InputError, match="not from labels alone"):
        plan.train_step(batch, 0.1)
    _, plain = training_plan()
    (head,) = [launch for launch in plain._lists["step"] if launch.recipe.factory == "make_head"]
    assert (len(head.recipe.constants), head.values[5]) == (1, 0)
    with pytest.raises(InputError, match="learns from labels alone"):
        plain.train_step(replace(batch, targets=targets), 0.1)


def test_a_plan_looks_at_the_photos_and_backgrounds_of_another_also_after_a_reset(driver):
    graph, owner = training_plan()
    other = CudaPlan(build("cnn", 5, 28), batch=6, training=False)
    photos = np.random.default_rng(0).integers(0, 256, (9, 30, 30, 3), dtype=np.uint8)
    masks, backgrounds = np.zeros((9, 4, 4), np.uint8), np.zeros((2, 8, 9, 3), np.uint8)
    batch = replace(batch_for(graph, 2), photos=None, index=np.array([8, 1]))
    with pytest.raises(InputError, match="keep_photos"):
        other.predict(batch)
    before = len(driver.blocks)
    assert owner.keep_photos(photos)
    owner.keep_backgrounds(Backgrounds(masks, backgrounds))
    other.borrow_photos(owner)
    assert len(driver.blocks) == before + len(owner._kept._blocks) == before + 3
    for _ in range(2):
        other.predict(batch)
        settings = other._settings
        kept = {name: block.address for name, (block, _) in owner._kept._blocks.items()}
        assert {name: getattr(settings, name).address for name in kept} == kept
        assert list(other._staging._controls[settings.slot].index[:2]) == [8, 1]
        assert (settings.source.height, settings.backgrounds.width) == (30, 9)
        device.reset()
    streamed = batch_for(graph, 3)
    other.predict(streamed)
    assert other._settings.source.address != kept["source"]
    other.close()
    owner.close()
    assert not driver.blocks


def test_the_loss_reads_a_flattened_image_as_one_pixel_and_refuses_one_with_padding():
    """Read as pixels, its "mean over pixels" was neither the logits nor inside the buffer."""

    def launches(filters):
        b = Builder("maps", (8, 8, 3), (0.5,) * 3, (0.2,) * 3)
        x = b.add("conv2d", "maps", "photo", filters=filters, kernel=(3, 3), padding=(1, 1, 1, 1))
        return lowered(b.graph(b.add("flatten", "flat", x)), "float32", hardware=typical()).launches

    (head,) = (launch for launch in launches(12) if launch.layer == "loss")
    assert head.values[8:12] == (1, 8 * 8 * 12, 8 * 8 * 12, 8 * 8 * 12)  # pixels, classes, pitches
    with pytest.raises(KernelUnavailable, match="a multiple of 4"):
        launches(5)


def test_layers_between_a_flattened_image_and_a_dense_layer_read_it_as_one_pixel():
    """The dropout took 36 pixels for 36 images, and wrote 35 images behind its output's end."""
    names = {"dropout": combine.DROPOUT.parameters}
    for launch in lowered(flattened_network(), "float32", hardware=typical()).launches:
        if launch.layer in ("kept", "gate", "sum"):
            parameters = names.get(launch.recipe.factory.removeprefix("make_"), combine.COMBINE.parameters)
            words = [name for name, kind in zip(parameters, launch.recipe.types, strict=True)
                     for _ in range(1 + (kind == "divisor"))]  # fmt: skip
            values = dict(zip(words, launch.values, strict=True))
            assert {value for name, value in values.items() if name.startswith("ld")} <= {0, 6 * 6 * 16}, launch
