"""What the GPU plan does before there is a GPU: launches, memory, packed filters, and its sentence without one."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from core.arena import lay_out
from core.errors import DeviceError, KernelUnavailable, OutOfMemory
from core.gpu.compilation.arrays import words
from core.gpu.driver.device import problem
from core.gpu.frame import Frame
from core.gpu.gradients import Backward
from core.gpu.graph_capture import record_streams
from core.gpu.hardware import typical
from core.gpu.launch import RELU, intervals_of, vectors_per_row
from core.gpu.lowering import write_forward, write_launches
from core.gpu.ops.conv.geometry import slices_of
from core.gpu.ops.conv.implicit_gemm import find_phase
from core.gpu.ops.conv.operands import pack_backward
from core.gpu.parts.vectors import fast_divisor
from core.gpu.plan import CudaPlan
from core.gpu.sizes import RESERVE, fitting_batch, require_room
from core.models.architectures import MODELS, build
from core.ops.builder import Builder, with_loss
from core.ops.window import Window
from core.plan import compile_plan
from core.program import fold_batch_norm, lower
from tests.helpers.gpu_network import AMPERE, rare_network
from tests.helpers.shapes import case, solve

NETWORKS = sorted(name for name in MODELS if name != "alexnet" and not name.endswith("_bypass")) + [
    "squeezenet1_1_complex_bypass"
]  # AlexNet's dense layers take a minute; the other bypasses have parts of this one


def frame_of(name, precision="mixed", training=True, batch=2, size=64, hardware=AMPERE, **more):
    return lowered(rare_network() if name == "rare" else build(name, 5, size), precision, training, batch,
                   hardware, **more)


def lowered(base, precision="mixed", training=True, batch=2, hardware=AMPERE, **more):
    graph = with_loss(base, 0.0, (), multi=base.name == "rare") if training else fold_batch_norm(base)
    frame = Frame(lower(graph, training, fused=RELU), batch, precision, hardware, **more)
    write_launches(frame)
    return frame


def check_launches(frame, training):
    """They fit the GPU, and every layer that learns has a gradient."""
    for launch in frame.launches:
        assert len(launch.values) == sum(len(words(kind)) for kind in launch.recipe.types), launch.layer
        assert all(side >= 1 for side in (*launch.grid, *launch.block))
        assert launch.shared <= 227 << 10
    trained = {n.rsplit(".", 1)[0] for n, p in frame.program.graph.parameters().items() if p.trained}
    assert {n.layer for n in frame.launches if n.direction == "backward_weight"} == (trained if training else set())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [*NETWORKS, "rare"])
def test_every_network_has_launches_and_memory(name, training):
    for precision in ("mixed", "tf32", "float32"):
        frame = frame_of(name, precision, training)
        assert lay_out(frame.lifetimes()).bytes > 0
        check_launches(frame, training)


def test_a_fused_activation_that_kernels_cannot_apply_is_refused_with_its_step():
    graph = fold_batch_norm(build("mobilenetv3_small", 5, 64))
    frame = Frame(lower(graph, False), 2, "mixed", AMPERE)
    with pytest.raises(KernelUnavailable, match=r"no kernel for hard_swish \(features.0.*with --device cpu"):
        write_launches(frame)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 32, 256])
@pytest.mark.parametrize("name", [*NETWORKS, "rare"])
def test_hopper_has_launches_of_its_own_that_fit(name, batch, training):
    size = 64 if name in ("cnn", "mlp") else 224  # their dense layers see all pixels: 75 million weights, 4 s
    check_launches(frame_of(name, training=training, batch=batch, size=size, hardware=typical()), training)


def test_what_is_between_the_photos_convolution_and_its_pool_is_in_memory_only_to_be_looked_at():
    network, between = build("squeezenet1_0", 5, 64), "features.1"
    for kept in (frozenset(), frozenset({between})):
        frame = Frame(lower(network, False), 2, "mixed", typical(), kept=kept)
        write_forward(frame)
        assert (between in frame.lifetimes()) == bool(kept)
        assert (frame.launches[1].recipe.factory == "make_image_pool") != bool(kept)


def check_waits(launches, intervals, monkeypatch):
    """Stream 1 waits for stream 0, stream 0 for launches of stream 1 two intervals before, at a join and at the end
    for all."""
    ended, before = {0: set(), 1: set()}, []

    class Event(set):
        def record(self, stream):
            self.update(ended[stream])

        def hold(self, stream):
            ended[stream].update(self)

    def run(launch, stream):
        before.append(set(ended[stream]))
        ended[stream].add(len(before) - 1)

    monkeypatch.setattr("core.gpu.graph_capture.Event", Event)
    record_streams(launches, 0, 1, run)
    for i, launch in enumerate(launches):
        beside = {j for j in range(i) if launches[j].stream and (launch.join or intervals[j] <= intervals[i] - 2)}
        assert {j for j in range(i) if not launches[j].stream} | (set() if launch.stream else beside) <= before[i]
    assert ended[0] == set(range(len(launches)))


def test_arrays_used_on_stream_one_live_until_stream_zero_has_waited_for_it(monkeypatch):
    frame = frame_of("squeezenet1_0", size=64)
    lives, intervals = frame.lifetimes(), intervals_of(frame.launches)
    for i, launch in enumerate(frame.launches):
        if launch.stream:
            used = [n for n in lives if i in frame._uses[n]]
            end = max((j for j, w in enumerate(intervals) if w <= intervals[i] + 1), default=i)
            assert used
            assert all(lives[n].last >= end for n in used)
    check_waits(frame.launches, intervals, monkeypatch)


def test_gradients_of_channels_are_added_after_the_first_and_masked_where_one_activation_wrote_them():
    b = Builder("joined", (8, 8, 3), (0.5,) * 3, (0.5,) * 3)
    x = b.add("relu", "relu", b.add("conv2d", "one", "photo", filters=8))
    frame = lowered(b.graph(b.add("concat", "both", x, b.add("conv2d", "two", x, filters=16))), training=False)
    (one, two), both = frame.program.steps, frame.program.output
    backward, whole = Backward(frame, False), Backward(frame, False)
    first, again = backward.target(one.output), backward.target(one.output)
    assert (first.masking, first.mask, first.accumulate, again.accumulate) == ("relu", frame.tensor(one.output), 0, 1)
    assert (backward.reached(one), backward.reached(two), backward.target(two.output).mask) == (True, False, None)
    assert whole.target(one.output, reads=False).mask is None
    with pytest.raises(KernelUnavailable, match="overlapping parts of both"):
        whole.target(both)
    assert Backward(frame, False).target(both).mask is None
    assert [backward.target(both) and backward.lacks_mask(step) for step in (one, two)] == [True, False]


@pytest.mark.parametrize(("room", "wanted"), [(0, 0), (99, 0), (110, 1), (111, 1), (199, 9), (200, 10), (10**6, 10)])
def test_the_largest_batch_that_fits_is_found(room, wanted):
    assert fitting_batch(10, RESERVE + room, lambda batch: 100 + 10 * batch) == wanted


@pytest.mark.parametrize(("of_one", "advice"), [(1 << 30, "A batch of 3 fits"), (4 << 30, "Not even one photo fits")])
def test_a_plan_that_fits_is_not_counted_again_and_one_that_does_not_is_told_what_does(of_one, advice):
    require_room(8, 8 * of_one, RESERVE + 8 * of_one, lambda _: pytest.fail("counted"))
    said = f"A batch of 8 photos needs {8 * of_one >> 30}.0 GiB on the GPU, where 3.2 GiB are free. {advice}"
    with pytest.raises(OutOfMemory, match=re.escape(said)):
        require_room(8, 8 * of_one, RESERVE + (3 << 30), lambda batch: of_one * batch)


def test_rows_of_threads_are_as_wide_as_a_divisor_of_the_vectors_that_keeps_warps_busy():
    assert [vectors_per_row(vectors, 256) for vectors in (3, 57, 128)] == [3, 19, 64]


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 54, 2916, 11881, 50176, 2**20 + 7])
def test_the_fast_division_is_exact(divisor):
    multiplier, shift = fast_divisor(divisor)
    multiples = np.arange(1, 400) * divisor
    numbers = np.concatenate([np.arange(5000), multiples, multiples - 1, [2**31 - 1]])
    for n in numbers[numbers < 2**31].tolist():
        assert (((n * multiplier) >> 32) + n) >> shift == n // divisor


@pytest.mark.parametrize(("name", "slices"), [("halves", 1), ("strided", 2)])
def test_a_convolution_in_groups_is_computed_in_slices_of_whole_vectors(name, slices):
    frame = frame_of("rare")
    step = next(s for s in frame.program.steps if s.node == name)
    assert slices_of(frame, step) == slices
    made = [n for n in frame.launches if n.layer == name and n.recipe.module == "ops.conv.implicit_gemm"]
    phases = np.prod(step.attributes["stride"])  # of the input gradient
    assert [launch.grid[2] for launch in made] == [slices, slices * phases]


def test_phases_of_strided_convolutions_add_up_to_the_input_gradient_of_the_reference():
    random, low, high = np.random.default_rng(0), (1,) * 4 + (0,) * 4 + (1,) * 3, (8, 8, 5, 5, 10, 10, 10, 10, 8, 8, 4)
    for _ in range(200):
        kh, kw, sy, sx, top, left, bottom, right, height, width, groups = random.integers(low, high).tolist()
        window = Window((kh, kw), (sy, sx), (top, left, bottom, right))
        side = max(kh - top - bottom, 0) + height, max(kw - left - right, 0) + width
        problem = solve(case("conv2d", (*side, 2 * groups), filters=3 * groups, groups=groups, kernel=window.kernel,
                             stride=window.stride, padding=window.padding))  # fmt: skip
        weight, dx = problem.given["weight"].astype(np.float64), np.zeros_like(problem.wanted["dx"])
        packed = pack_backward(np.arange(weight.size).reshape(weight.shape), window, 2, groups)
        dy = np.pad(problem.given["dy"], ((0, 0), (24, 24), (24, 24), (0, 0)))
        at = SimpleNamespace(stride_y=sy, stride_x=sx, top=top, left=left)
        for part, rows in enumerate(np.where(packed < 0, 0, weight.flat[packed]).reshape(groups * sy * sx, 8, -1)):
            y, x, tall, wide, above, before = find_phase.py_func(part, at, kh, kw)
            g, filters = part // (sy * sx), rows[:2, : tall * wide * 8].reshape(2, tall, wide, 8)[..., :3]
            phase = dx[:, y::sy, x::sx, 2 * g : 2 * g + 2]
            for ky, kx in np.ndindex(tall, wide):
                seen = dy[:, 24 - above + ky :, 24 - before + kx :, 3 * g : 3 * g + 3]
                phase += seen[:, : phase.shape[1], : phase.shape[2]] @ filters[:, ky, kx].T
        np.testing.assert_allclose(dx, problem.wanted["dx"], atol=1e-12)


@pytest.mark.parametrize(("first", "more", "reason"), [
    ("avg_pool", {}, r"photo itself, not avg_pool \(first\)"),
    ("conv2d", {"filters": 8, "kernel": (1, 1)}, r"backward_input \(last\).* at most 65,535 phases"),
])  # fmt: skip
def test_steps_that_no_kernel_computes_are_refused_with_a_sentence(first, more, reason):
    b = Builder("refused", (8, 8, 3), (0.5,) * 3, (0.5,) * 3)
    x = b.add("conv2d", "last", b.add(first, "first", "photo", **more), filters=8, kernel=(1, 1), stride=(256, 256))
    with pytest.raises(KernelUnavailable, match=reason):
        lowered(b.graph(b.add("global_avg_pool", "pool", x)))


def test_an_algorithm_that_does_not_exist_or_without_a_kernel_for_a_step_is_refused_and_names_the_step():
    with pytest.raises(KernelUnavailable, match="no algorithm 'quick'. Choose one of naive"):
        CudaPlan(build("cnn", 5, 28), batch=1, training=False, algorithm="quick")
    with pytest.raises(KernelUnavailable, match="naive computes in float32 only: use --precision float32"):
        CudaPlan(build("cnn", 5, 28), batch=1, training=False, precision="mixed", algorithm="naive")
    with pytest.raises(KernelUnavailable, match="No step of mlp is computed by winograd"):
        frame_of("mlp", "float32", False, size=28, algorithm="winograd")


def test_without_a_gpu_the_device_is_refused_with_one_sentence():
    reason = problem()
    if reason is None:
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError) as caught:
        compile_plan(build("cnn", 5, 28), device="cuda")
    assert str(caught.value) == reason
    assert reason.endswith(".")
    assert compile_plan(build("cnn", 5, 28), device="auto").kernels()
