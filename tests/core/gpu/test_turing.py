"""GPUs before compute capability 8.0: the fast kernels with plain copies and multiply-adds."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from core.errors import KernelUnavailable
from core.gpu.compilation.compiler import compile_kernel
from core.gpu.compilation.generations import TURING, without_async_copies
from core.gpu.hardware import typical
from core.gpu.parts.tile import Tile
from core.models.architectures import build
from core.ops import network as references
from core.ops.builder import with_loss
from core.ops.op_table import OPS
from tests.core.gpu import test_lowering as lowering
from tests.helpers.gpu_network import batch_for, gradients_and_logits, random_weights, relative
from tests.helpers.reference_plan import reference_gradients
from tests.helpers.resources import check_registers

SHARED = 64 << 10
"""Bytes of shared memory of a block."""


def frame_of(name, training, precision="float32", batch=32, size=224):
    return lowering.frame_of(name, precision, training, batch, size, typical(TURING))


@pytest.mark.parametrize(("batch", "size"), [(1, 224), (256, 224), (32, 96)])
@pytest.mark.parametrize("name", [*(name for name in lowering.NETWORKS if name != "mlp"), "rare"])
def test_every_launch_fits(name, batch, size):
    for training in (True, False):
        for launch in frame_of(name, training, "float32", batch, size).launches:
            assert launch.shared <= SHARED, (launch.layer, launch.direction, launch.recipe)
            assert launch.block[0] * launch.block[1] * launch.block[2] <= 1024


@pytest.mark.parametrize("precision", ["mixed", "tf32"])
def test_another_precision_is_refused_with_the_one_there_is(precision):
    with pytest.raises(KernelUnavailable, match="computes in float32 only.*--precision float32"):
        frame_of("squeezenet1_1", True, precision)


MATRIX = ("make_convolution", "make_weight_gradient")


def recipes():
    """One kernel of every factory, of matrix kernels the one with the most sums a thread, by name."""
    found = {}
    for name in ("squeezenet1_0", "squeezenet1_1_bn", "mobilenetv2", "rare"):
        for training in (True, False):
            for launch in frame_of(name, training).launches:
                recipe = launch.recipe
                fragments = 0
                if recipe.constants[:1] == ("fma",) and isinstance(recipe.constants[1], tuple):
                    down, across = Tile(*recipe.constants[1]).fragments
                    fragments = down * across
                found.setdefault(recipe.factory, {})[fragments] = recipe
    return {factory: by[max(by)] for factory, by in found.items()}


RECIPES = recipes()
ALSO_WITH_PLAIN_ARITHMETIC = sorted(f for f in RECIPES if f not in MATRIX)


@pytest.mark.parametrize(
    "factory", [*MATRIX, *(pytest.param(f, marks=pytest.mark.slow) for f in ALSO_WITH_PLAIN_ARITHMETIC)]
)
def test_a_kernel_fits_into_registers_without_what_came_later(factory):
    ptx, _ = compile_kernel(RECIPES[factory], TURING)
    assert not re.search(r"cp\.async|mma\.sync|tf32|bf16", ptx)
    check_registers(ptx, TURING)


def test_a_copy_is_a_load_and_a_store_of_sixteen_bytes_or_zeros():
    copy = "cp.async.cg.shared.global [%r1], [%rd2], 16, %r3;"
    ptx = "\n".join((copy, "cp.async.commit_group;", "cp.async.wait_group 2;", "ret;"))
    plain = without_async_copies(ptx)
    assert "cp.async" not in plain
    assert "@real ld.global.v4.u32 {a, b, c, d}, [%rd2]; st.shared.v4.u32 [%r1], {a, b, c, d};" in plain
    assert "setp.ne.u32 real, %r3, 0;" in plain
    assert plain.endswith("ret;")


@pytest.fixture
def take_for_turing(monkeypatch):
    """A function that takes the GPU for one of compute capability 7.5."""
    from core.gpu.driver import device

    def take():
        device.reset()
        opened = device.open_device()
        monkeypatch.setattr(opened, "capability", TURING)
        monkeypatch.setattr(opened, "hardware", typical(TURING))

    yield take
    device.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1_bn", "mobilenetv2"])
def test_every_step_agrees_with_its_reference(name, take_for_turing):
    from core.device import Optimizer
    from core.gpu.plan import CudaPlan

    take_for_turing()
    network = build(name, 5, 75, dropout=0.2)
    weights, batch = random_weights(network), batch_for(network, 5)
    plan = CudaPlan(with_loss(network, 0.1, ()), batch=5, training=True, optimizer=Optimizer(), verify=True)
    plan.load(weights)
    plan.gradient(batch)  # raises at the first step that differs by more than 1e-4
    plan.close()


COMPARED = {64: (3, 2, 1e-4), 75: (3, 4, 1e-4), 224: (7, 1, 1e-3)}
"""By side: photos, seed, and how far a parameter's gradient may be off.

A value that two sums round to either side of zero, or two that a max pool finds alike, sends its gradient another way.
One such pixel among seven photos of 64 pixels moved the gradient of the first filters by 0.0048, between the two
arithmetics on a GPU as between NumPy's float32 and float64. The photos of 64 and 75 pixels lie beside no tie, as the
test below shows. Seven photos of 224 have too many values for that, but one of so many weighs less: noise of 1e-6 on
every convolution moves the gradient of the first filters by 0.0005 to 0.0007.
"""


@pytest.mark.parametrize("side", [64, 75])
def test_the_compared_photos_lie_beside_no_tie(side, monkeypatch):
    """Noise of 1e-6 on every convolution, more than float32 rounds by, moves no gradient past the bound."""
    count, seed, bound = COMPARED[side]
    network = build("squeezenet1_1", 5, side, dropout=0.0)
    weights, batch, draw = random_weights(network), batch_for(network, count, seed), np.random.default_rng(0)

    def noisy(*step):
        exact = OPS["conv2d"].forward(*step)
        spread = 1e-6 * np.sqrt(np.square(exact.output).mean())
        return replace(exact, output=exact.output + spread * draw.normal(size=exact.output.shape))

    def gradients():
        return reference_gradients(with_loss(network, 0.1, ()), weights, batch).gradients

    wanted = gradients()
    shaken = SimpleNamespace(forward=noisy, backward=OPS["conv2d"].backward)
    monkeypatch.setattr(references, "OPS", {**OPS, "conv2d": shaken})
    for _ in range(2):
        got = gradients()
        assert max(relative(got[n], wanted[n]) for n in wanted) < bound


@pytest.mark.gpu
@pytest.mark.parametrize("side", sorted(COMPARED))
def test_predictions_and_gradients_are_those_of_tensor_cores(side, take_for_turing):
    count, seed, bound = COMPARED[side]
    network = build("squeezenet1_1", 5, side, dropout=0.0)
    weights, batch = random_weights(network), batch_for(network, count, seed)
    wanted = gradients_and_logits(network, batch, weights)
    take_for_turing()
    loss, gradients, logits = gradients_and_logits(network, batch, weights)
    assert loss == pytest.approx(wanted[0], rel=1e-5)
    assert relative(logits, wanted[2]) < 1e-5
    assert max(relative(gradients[n], wanted[1][n]) for n in gradients) < bound
    assert all(np.isfinite(g).all() for g in gradients.values())
