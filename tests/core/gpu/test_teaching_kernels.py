"""Teaching kernels as candidates, run as plain Python: each by itself against the reference, and whole networks."""

from math import prod

import numpy as np
import pytest

from core.gpu.arguments import POINTER
from core.gpu.candidates import CANDIDATES
from core.gpu.compilation import arrays
from core.gpu.control import Control, make_block
from core.gpu.hardware import typical
from core.gpu.ops.conv import fft, transformed
from core.gpu.ops.dense import product
from core.gpu.ops.matmul import warp_tiled
from core.gpu.select import BY_NAME
from core.gpu.single import new_frame, write
from core.gpu.teaching.kernel import TeachingKernel
from core.graph import PHOTO
from core.ops import network
from core.ops.activation import ACTIVATIONS
from core.ops.builder import Builder, with_loss
from core.ops.contract import Mode
from tests.helpers.compare import relative_error
from tests.helpers.emulated_network import Lowered, put_photo
from tests.helpers.gpu_network import random_weights
from tests.helpers.shapes import case
from tests.helpers.single_kernels import check, check_case, entries, is_teaching, run_as_python

LIMITS = {
    "conv2d": 60, "dense": 100, "max_pool": 100, "avg_pool": 100, "global_avg_pool": 200, "depthwise_conv2d": 100,
    "batch_norm": 200, "softmax": 100, "softmax_cross_entropy": 120, "add": 50,
    "concat": 50, "dropout": 120, "matmul": 4500, "multiply": 100, **dict.fromkeys(ACTIVATIONS, 50),
}  # fmt: skip
"""Ops, and the elements of their largest case: plain Python is slow."""


@pytest.mark.parametrize("op", LIMITS)
def test_every_teaching_kernel_agrees_with_the_reference(op):
    found = list(check(op, LIMITS[op], run_as_python, is_common))
    wrong = [(one.name, *rest) for one, *rest in found if not rest[2] <= rest[3]]
    assert not wrong, wrong
    ran = {(one.name, direction) for one, direction, *_ in found}
    assert ran == {(one.name, direction) for one, direction in entries(op) if is_common(one)}


def is_common(candidate):
    return is_teaching(candidate) and candidate.level not in BY_NAME


THREE = case("conv2d", (5, 4, 3), filters=2, kernel=(3, 3), padding=(1, 1, 1, 1))
WIDE = case("conv2d", (6, 9, 2), filters=3, kernel=(3, 2), padding=(2, 0, 0, 1), bias=False, batch=1)


@pytest.mark.parametrize(("name", "problem"), [
    ("winograd", THREE), ("winograd_f4", THREE), ("fft", THREE), ("fft", WIDE), ("fft_tiled", WIDE),
])  # fmt: skip
def test_convolutions_in_another_basis_agree_with_the_reference(name, problem, monkeypatch):
    for module in (product, transformed):  # few threads: plain Python is slow
        monkeypatch.setattr(module, "SIDE", 2)
        monkeypatch.setattr(module, "TILE", 2 * product.EACH)
    monkeypatch.setattr(fft, "TILE", 8)
    found = list(check_case(problem, run_as_python, lambda one: one.name == name))
    assert [direction for _, direction, *_ in found] == ["forward", "backward_input"]
    assert all(error < 1e-5 for *_, error, _ in found), found


@pytest.mark.parametrize("tile", [warp_tiled.LARGE, warp_tiled.SMALL], ids=str)
def test_the_other_tiles_of_the_warp_tiled_product_agree_too(tile, monkeypatch):
    monkeypatch.setattr(warp_tiled, "choose", lambda rows, columns: tile)
    found = list(check("matmul", 4500, run_as_python, lambda one: one.name == "warp_tiled"))
    assert found
    assert all(error <= tolerance for *_, error, tolerance in found), found


@pytest.mark.parametrize(("op", "more"), [("relu", {}), ("add", {}), ("dropout", {"rate": 0.5, "key": 1})])
def test_a_launch_has_a_thread_for_each_element(op, more):
    shapes = ((8, 8, 16),) * (2 if op == "add" else 1)
    for candidate, direction in entries(op):
        if is_teaching(candidate):
            frame = new_frame(candidate, direction, case(op, *shapes, batch=2, **more))
            write(candidate, direction, frame)
            assert all(prod(n.grid) * prod(n.block) >= 2048 for n in frame.launches), direction


def test_the_annotations_of_a_teaching_kernel_may_be_evaluated():
    def twice(x: arrays.Vector, n: arrays.Int) -> None: ...
    assert TeachingKernel(twice).types == ("Vector", "Int")


def test_every_op_with_a_teaching_kernel_is_checked():
    assert {one.pattern[0] for one in CANDIDATES.all if is_teaching(one)} == set(LIMITS), "LIMITS needs each"


SIDE, IMAGES, CLASSES = 4, 2, 5


def small_network():
    """Slices of a concatenation, gradients from two readers, masks, a batch norm, dropout, odd channels."""
    b = Builder("small", (SIDE, SIDE, 3), (0.5,) * 3, (0.25,) * 3)
    near = {"kernel": (3, 3), "padding": (1,) * 4}
    x = b.add("relu", "first out", b.add("conv2d", "first", PHOTO, filters=6, **near))
    halves = [b.add("relu", f"{n} out", b.add("conv2d", n, x, filters=4, **more)) for n, more in
              (("left", {}), ("right", near))]  # fmt: skip
    x = b.add("concat", "joined", *halves)
    y = b.add("batch_norm", "norm", x)
    y = b.add("relu6", "deep out", b.add("depthwise_conv2d", "deep", y, **near))
    x = b.add("max_pool", "pool", b.add("add", "sum", x, y), kernel=(3, 3), stride=(2, 2), ceil_mode=True)
    x = b.add("dropout", "some", x, rate=0.25, key=1)
    x = b.add("relu", "hidden out", b.add("dense", "hidden", b.add("flatten", "flat", x), units=7))
    return with_loss(b.graph(b.add("dense", "logits", x, units=CLASSES)), 0.1, ())


PARTS = ((False, 2), (True, 1))
"""Whether the gradients are added to those before, and the real images of the batch."""


@pytest.mark.parametrize(("algorithm", "parts"), [("naive", PARTS), ("im2col", PARTS[:1])])
def test_a_whole_network_has_the_references_gradients(algorithm, parts):
    graph = small_network()
    lowered = Lowered(graph, "float32", 132, True, IMAGES, True, typical(), algorithm=algorithm)
    frame, memory, (at, _), weights = lowered.frame, lowered.memory, lowered.addresses, random_weights(graph)
    lowered.put_weights(weights)
    draw, wanted = np.random.default_rng(0), {}
    for accumulate, real in parts:
        lowered.write(accumulate)
        assert {launch.kernel for launch in frame.launches if POINTER in launch.recipe.types} == {"photo", "head"}
        raw = make_block(IMAGES, photos=real, seed=3)
        labels = Control(raw, IMAGES).labels
        labels[:] = draw.integers(0, CLASSES, IMAGES)
        memory.put(at["control"], raw)
        photo = draw.normal(size=(IMAGES, SIDE, SIDE, 3)).astype(np.float32)
        put_photo(frame, memory, photo)
        for launch in frame.launches[1:]:  # the first transforms the photos
            lowered.machine.run(launch)
        wide = {n: a.astype(np.float64) for n, a in weights.items()}
        found = network.loss_and_gradients(graph, wide, photo[:real].astype(np.float64), labels[:real],
                                           Mode(training=True, seed=3))  # fmt: skip
        wanted = {n: g + wanted.get(n, 0) for n, g in found.gradients.items()}
        losses = memory.get(at["results"], IMAGES, np.float32)[:real]
        assert float(losses.sum()) == pytest.approx(found.loss, rel=1e-5)
    for name, gradient in wanted.items():
        assert relative_error(lowered.gradient(name), gradient) < 1e-4, name
