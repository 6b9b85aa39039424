"""With verify, a wrong kernel is named; right ones pass."""

import pytest

from core.cpu.plan import CpuPlan
from core.errors import LeafClinicError
from core.models.architectures import build
from core.ops.builder import with_loss
from tests.helpers.golden import weights_of
from tests.helpers.gpu_network import batch_for


def _plan(name, training, batch=3, dropout=0.3, seed=1, classes=3):
    graph = build(name, classes, 36, dropout)
    frozen = ("dense1.weight", "conv1.bias") if (name, training) == ("cnn", True) else ()
    plan = CpuPlan(with_loss(graph, 0.1, ()) if training else graph, batch=batch, training=training, verify=True,
                   frozen=frozen)  # fmt: skip
    plan.load(weights_of(graph))
    return plan, batch_for(graph, batch, seed)


@pytest.mark.parametrize(("name", "more"), [
    ("squeezenet1_1", ()), ("squeezenet1_1_bn", ()), ("cnn", ()), ("mlp", ()),
    ("mlp", (3, 0.3, 1, 1)),  # with one class every gradient is zero
    ("squeezenet1_1", (8, 0.0, 4)),  # with AVX-512 rounding moves a ReLU's input across zero, and a gradient by 6 %
])  # fmt: skip
def test_right_kernels_pass_and_leave_no_trace(name, more):
    plan, batch = _plan(name, True, *more)
    checked = plan.gradient(batch)
    plan._verify = False
    plan.load(weights_of(plan.program.graph))
    assert plan.gradient(batch) == checked
    assert _plan(name, False, *more)[0].predict(batch)["logits"].shape[0] == plan.batch


def test_a_step_that_computes_something_else_is_named():
    plan, batch = _plan("squeezenet1_1", False)
    panel = next(r for r in plan._lowering.packs if r.layer == "features.4.squeeze")
    plan._lowering.packs.remove(panel)
    plan._packs = plan._share_out(plan._lowering.packs)
    broken = weights_of(plan.program.graph)
    broken["features.4.squeeze.weight"] = broken["features.4.squeeze.weight"] * 2
    plan.load(broken)  # the panel of that layer is never packed: its kernel sees zeros
    with pytest.raises(LeafClinicError, match=r"features\.4\.squeeze \(conv2d\) forward differs"):
        plan.predict(batch)


def test_a_wrong_gradient_is_named():
    plan, batch = _plan("squeezenet1_1", True)
    for rows, _ in plan._sums:
        rows.words[-1, 7] = 1  # the classifier's bias is added to what is there
    plan._gradient[:] = 1
    with pytest.raises(LeafClinicError, match=r"gradient of .*bias differs"):
        plan.gradient(batch)
