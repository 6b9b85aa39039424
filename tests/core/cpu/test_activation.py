"""Every activation behind every kernel that may end with one, against the reference in float64."""

import pytest

from core.cpu import kernel_entries
from core.cpu.activation import NUMBERS
from core.cpu.plan import CpuPlan
from core.cpu.single import Single
from core.errors import KernelUnavailable
from core.ops.activation import ACTIVATIONS
from core.ops.builder import Builder, with_loss
from core.ops.registry import Registry
from core.program import TAKES_ACTIVATION, lower
from tests.helpers.compare import assert_close, poisoned
from tests.helpers.shapes import case, solve

SHAPES = {"conv2d": (((9, 8, 5),), {"filters": 70, "kernel": (3, 3), "padding": (1, 1, 1, 1)}),
          "depthwise_conv2d": (((9, 8, 70),), {"kernel": (3, 3), "padding": (1, 1, 1, 1)}),
          "dense": (((37,),), {"units": 70}), "batch_norm": (((9, 8, 19),), {}), "add": (((5, 7, 3), (5, 7, 3)), {})}
WIDER = ("depthwise_conv2d", ((9, 8, 19),), {"kernel": (5, 5), "stride": (2, 2), "padding": (2, 2, 2, 2)})
CASES = [*((op, *rest) for op, rest in SHAPES.items()), WIDER]
FUSED = [name for name, row in ACTIVATIONS.items() if row.fuses]


def kernels(op, direction):
    return [kernel for kernel in kernel_entries.CPU.of(op, direction) if kernel.algorithm != "reference"]


def test_every_activation_has_a_kernel_and_every_op_that_ends_with_one_a_case():
    assert set(NUMBERS) == {"", *ACTIVATIONS}
    assert set(SHAPES) == set(TAKES_ACTIVATION)


@pytest.mark.parametrize("activation", FUSED)
@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES)
def test_a_fused_activation_agrees_with_the_reference(op, inputs, attributes, activation):
    problem = solve(case(op, *inputs, activation=activation, **attributes))
    arrays = {name: array.copy() for name, array in problem.given.items()}
    for kernel in kernels(op, "forward"):
        arrays["out"] = poisoned(problem.wanted["out"].shape)
        kernel.run(problem.case, arrays)
        assert_close(arrays["out"], problem.wanted["out"], 2e-5)
    for kernel in kernels(op, "backward_input") if not ACTIVATIONS[activation].needs_input else ():
        arrays |= {name: poisoned(problem.wanted["dx"].shape) for name in ("dx", "dx2")}
        kernel.run(problem.case, arrays)
        assert_close(arrays["dx"], problem.wanted["dx"], 2e-5)


def test_a_gradient_that_needs_what_was_not_kept_is_refused():
    wanted = case("dense", (37,), units=7, activation="hard_swish")
    with pytest.raises(KernelUnavailable, match="gradient of hard_swish needs its input"):
        Single(wanted, kernels("dense", "forward")[-1].writers, 1)


@pytest.mark.parametrize("training", [True, False])
def test_an_unknown_activation_is_refused(training):
    with pytest.raises(KernelUnavailable, match=r"no activation 'gelu' \(node\).*hard_swish"):
        Single(case("dense", (37,), units=7, activation="gelu"), kernels("dense", "forward")[-1].writers, 1, training)


def _graph(op):
    b = Builder("one", (6, 6, 3), (0.5,) * 3, (0.25,) * 3)
    x = b.add("conv2d", "conv", "photo", filters=4)
    x = b.add(op, "activation", x)
    return b.graph(b.add("global_avg_pool", "pool", x))


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_training_keeps_the_input_that_a_gradient_needs(op):
    row = ACTIVATIONS[op]
    trained = [(s.op, s.activation) for s in lower(with_loss(_graph(op), 0.0, ()), training=True).steps[:2]]
    used = [(s.op, s.activation) for s in lower(_graph(op), training=False).steps[:2]]
    assert (trained[0] == ("conv2d", op)) is (row.fuses and not row.needs_input)
    assert (used[0] == ("conv2d", op)) is row.fuses


@pytest.mark.parametrize("training", [True, False])
def test_an_unknown_op_is_refused_with_its_step(training, monkeypatch):
    graph = with_loss(_graph("relu"), 0.0, ()) if training else _graph("relu")
    others = Registry(kernel for kernel in kernel_entries.PLANS.kernels if kernel.op != "global_avg_pool")
    monkeypatch.setattr(kernel_entries, "PLANS", others)
    with pytest.raises(KernelUnavailable, match=r"the step pool by 'auto'.*global_avg_pool forward"):
        CpuPlan(graph, batch=1, training=training)
