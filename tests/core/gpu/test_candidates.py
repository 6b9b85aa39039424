"""The table of candidates: choices, refusals, arguments by name, and the explanation of a plan."""

import inspect
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import product

import pytest

from core.device import Optimizer
from core.errors import KernelUnavailable
from core.gpu import launch
from core.gpu.arguments import DIVISOR, INTEGER, POINTER, Argument, KernelSignature
from core.gpu.candidates import CANDIDATES
from core.gpu.compilation.compiler import Recipe
from core.gpu.explain import explain, frame_for
from core.gpu.launch import RELU
from core.gpu.lowering import write_backward, write_forward, write_lists
from core.gpu.ops.elementwise import combine
from core.gpu.segments import choose_forward
from core.gpu.select import FAST, FORWARD, INPUT, Candidates, Case
from core.models.architectures import build
from core.ops.builder import with_loss
from core.program import fold_batch_norm, lower
from tests.core.gpu.test_lowering import lowered
from tests.helpers.single_kernels import written_alone


def frame_of(name, training=False, batch=2, capability=(9, 0), precision="mixed", size=64):
    base = build(name, 5, size)
    graph = with_loss(base, 0.0, ()) if training else fold_batch_norm(base)
    return frame_for(lower(graph, training, fused=RELU), batch, precision, capability)


def test_every_kernel_has_the_parameters_that_its_signature_declares(monkeypatch):
    made, declared, pack = [], [], KernelSignature.pack
    monkeypatch.setattr(launch, "Recipe", lambda *fields: made.append(Recipe(*fields)) or made[-1])
    monkeypatch.setattr(KernelSignature, "pack", lambda of, **values: declared.append(of) or pack(of, **values))
    for name, training, batch, capability in (
        ("squeezenet1_0", True, 128, (9, 0)), ("squeezenet1_1_bn", True, 128, (8, 0)),
        ("squeezenet1_1_bn", False, 1, (8, 0)), ("squeezenet1_1_bn", False, 128, (9, 0)),
        ("mobilenetv2", False, 1, (8, 0)), *product(("mobilenetv3_small",), (False, True), (128,), ((8, 0),)),
    ):
        write_lists(frame_of(name, training, batch, capability, size=224), defaultdict(int), {}, Optimizer())
    lowered(build("squeezenet1_1_bn", 5, 64), ranks=2)
    assert list(written_alone())
    for recipe, signature in dict(zip(made, declared, strict=True)).items():
        assert tuple(inspect.signature(recipe.function()).parameters) == signature.parameters, recipe
    everywhere = [value for name, module in list(sys.modules.items()) if name.startswith("core.gpu.")
                  for value in vars(module).values() if isinstance(value, KernelSignature)]  # fmt: skip
    unused = set(everywhere) - set(declared) - {combine.LAYOUT}
    assert not unused, "neither a candidate by itself nor a network above launches these kernels"
    assert all(argument.meaning for signature in everywhere for argument in signature.flat)


@pytest.mark.parametrize(("more", "said"), [((CANDIDATES.all[0],), "listed twice"), (
    (replace(CANDIDATES.all[0], name="new", level="newest"),), r"level is not in LEVELS: \[\('new', 'newest'\)\]",
)])  # fmt: skip
def test_a_table_with_a_wrong_candidate_names_it(more, said):
    with pytest.raises(ValueError, match=said):
        Candidates((*CANDIDATES.all, *more))


def test_arguments_are_packed_by_name_and_wrong_names_raise():
    arguments = Argument("x", POINTER, "input"), Argument("by_n", DIVISOR, "division by n"), Argument("n", INTEGER, "n")
    signature = KernelSignature(arguments)
    assert signature.parameters == ("x", "by_n", "n")
    packed = signature.pack(n=8, x=64, by_n=8)
    assert (packed[0], packed[3]) == (64, 8)
    assert len(packed) == 4
    with pytest.raises(TypeError, match=r"missing \['n'\], unknown \['m'\]"):
        signature.pack(x=1, by_n=2, m=3)


@pytest.mark.parametrize("change", [{"op": "spline"}, {"activation": "spline"}], ids=str)
@pytest.mark.parametrize("direction", [FORWARD, "backward"])
def test_an_unknown_op_or_activation_raises_forward_and_backward_and_names_the_step(direction, change):
    frame = frame_of("squeezenet1_1", training=True)
    steps = frame.program.steps
    at = next(i for i, step in enumerate(steps) if step.op == "max_pool")
    unknown = replace(steps[at], **change)
    frame.program = replace(frame.program, steps=(*steps[:at], unknown, *steps[at + 1 :]))
    with pytest.raises(KernelUnavailable, match=rf"no kernel for spline .*\({unknown.node}\)"):
        write_forward(frame) if direction == FORWARD else write_backward(frame, False)
    with pytest.raises(KeyError, match=r"spline"):
        combine.forward(Case(frame, (replace(unknown, op="spline"),), FORWARD))


def test_the_image_and_its_pool_are_one_segment_on_hopper_and_elsewhere_the_candidate_says_why_not():
    frame = frame_of("squeezenet1_1", training=True, capability=(8, 6))
    considered = CANDIDATES.consider(Case(frame, frame.program.steps[:2], FORWARD))
    assert {one.candidate.name: one.reason for one in considered}["image_pool"] == (
        "It runs only on compute capability 9.0.")
    for capability, length in (((9, 0), 2), ((8, 6), 1)):
        first = choose_forward(frame_of("squeezenet1_1", training=True, capability=capability))[0]
        assert len(first.steps) == length


@pytest.mark.parametrize("one", [c for c in CANDIDATES.all if c.pattern[-1] == "max_pool" and c.direction == FORWARD
                                 and c.level in FAST], ids=lambda one: one.name)  # fmt: skip
def test_every_fast_forward_candidate_of_a_max_pool_writes_the_positions_that_training_reads(one):
    frame = frame_of("squeezenet1_1", training=True)
    case = Case(frame, frame.program.steps[2 - len(one.pattern) : 2], FORWARD)
    one.write(replace(case, configuration=one.configurations(case)[0]))
    assert f"positions:{case.steps[-1].node}" in frame.array_sizes


def test_every_step_of_a_training_plan_is_explained_with_one_choice():
    frame = frame_of("squeezenet1_1", training=True)
    explained = explain(frame)
    chosen = [node for one in explained if one.chosen and one.direction == FORWARD for node in one.steps]
    assert sorted(chosen) == sorted(s.node for s in frame.program.steps if s.op not in (
        "softmax_cross_entropy", "global_avg_pool"))  # fmt: skip
    for one in explained:
        assert all(candidate.reason or candidate.microseconds > 0 for candidate in one.considered)
    assert any(one.direction == INPUT and one.chosen.startswith("fire") for one in explained)
    assert not frame.launches
