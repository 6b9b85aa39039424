"""The table of candidates: choices, refusals, arguments by name, and the explanation of a plan."""

import inspect
from dataclasses import replace

import pytest

from core.errors import KernelUnavailable
from core.gpu.arguments import DIVISOR, INTEGER, POINTER, Argument, KernelSignature
from core.gpu.candidates import CANDIDATES
from core.gpu.explain import explain, frame_for
from core.gpu.latency import conv, expand_depthwise, fire_halo
from core.gpu.launch import RELU
from core.gpu.lowering import choose_forward, write_backward, write_forward
from core.gpu.ops.conv import implicit_gemm, partial_sums, weight_gradient
from core.gpu.ops.depthwise import direct, strip_gradient, strips
from core.gpu.ops.elementwise import combine, image_sum
from core.gpu.ops.pool import max_pool
from core.gpu.select import FAST, FORWARD, INPUT, Case
from core.gpu.sm90 import (
    halo_resident,
    halo_tma,
    image_pool,
    image_pool_gradient,
    pointwise_forward,
    pointwise_gradients,
    row_weight_gradient,
)
from core.models.architectures import build
from core.ops.builder import with_loss
from core.program import fold_batch_norm, lower

SHAPE = (3, 3, 2, 2)
BLOCK = (1, 2, 1, 2)
TILE = (64, 64, 64, 3, 2, 2, 4)
KERNELS = (
    (max_pool.FORWARD, max_pool.make_max_pool(4, SHAPE, False)),
    (max_pool.GRADIENT, max_pool.make_max_pool_gradient(4, SHAPE, False)),
    (implicit_gemm.SIGNATURE, implicit_gemm.make_convolution("bf16", TILE, "window")),
    (weight_gradient.SIGNATURE, weight_gradient.make_weight_gradient("bf16", TILE, True)),
    (partial_sums.SIGNATURE, partial_sums.reduction), (combine.COMBINE, combine.make_combine(2, "sum")),
    (combine.DROPOUT, combine.make_dropout(2)), (combine.COMBINE, combine.make_combine(2, "product")),
    (image_sum.IMAGE_SUM, image_sum.make_image_sum(2, True)),
    (conv.SIGNATURE, conv.make_small_convolution(BLOCK, 1, 3, True)),
    (fire_halo.SIGNATURE, fire_halo.make_fire_halo(BLOCK, 1)),
    (direct.SIGNATURE, direct.make_depthwise(2, False, SHAPE, direct.FILTERS)),
    (direct.WEIGHT_SIGNATURE, direct.make_depthwise_weight(2, SHAPE)),
    (strips.SIGNATURE, strips.make_depthwise_strips(2, 1, 2)),
    (strip_gradient.SIGNATURE, strip_gradient.make_depthwise_gradient(2, 2, 2)),
    (expand_depthwise.SIGNATURE, expand_depthwise.make_expand_depthwise(1, 1, 4, 2)),
    (halo_resident.SIGNATURE, halo_resident.make_resident_halo((128, 32, 32, 2, 8, 1, 1))),
    (halo_tma.SIGNATURE, halo_tma.make_halo_tma(16, 32, 2, 11, 3, 1, 1, 3)),
    (row_weight_gradient.SIGNATURE, row_weight_gradient.make_row_weight_gradient(16, 16, 8, 2, 2)),
    (pointwise_forward.SIGNATURE, pointwise_forward.make_pointwise_convolution((64, 16, 16, 2, 4, 1, 1), 1)),
    (pointwise_gradients.SIGNATURE, pointwise_gradients.make_pointwise_gradients((64, 64, 32, 2, 4, 1, 1), 1)),
    (image_pool.SIGNATURE, image_pool.make_image_pool(7, 2, 48, 4, True)),
    (image_pool_gradient.SIGNATURE, image_pool_gradient.make_image_gradient(7, 4, 7, 96)),
)  # fmt: skip


def frame_of(name, training=False, batch=2, capability=(9, 0), precision="mixed", **more):
    base = build(name, 5, 64)
    graph = with_loss(base, 0.0, ()) if training else fold_batch_norm(base)
    return frame_for(lower(graph, training, fused=RELU), batch, precision, capability, **more)


@pytest.mark.parametrize(("signature", "kernel"), KERNELS, ids=lambda k: getattr(k, "__qualname__", "").split(".")[0])
def test_a_kernel_has_the_parameters_that_its_signature_declares(signature, kernel):
    assert tuple(inspect.signature(kernel).parameters) == signature.parameters
    assert len(signature.kinds) == len(signature.parameters)
    assert all(argument.meaning for argument in signature.flat)


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
    rows = CANDIDATES.consider(Case(frame, frame.program.steps[:2], FORWARD))
    assert {row.candidate.name: row.reason for row in rows}["image_pool"] == "It needs compute capability 9.0."
    for capability, length in (((9, 0), 2), ((8, 6), 1)):
        first = choose_forward(frame_of("squeezenet1_1", training=True, capability=capability))[0]
        assert len(first.steps) == length


@pytest.mark.parametrize("row", [r for r in CANDIDATES.all if r.pattern[-1] == "max_pool" and r.direction == FORWARD
                                 and r.level in FAST], ids=lambda row: row.name)  # fmt: skip
def test_every_fast_forward_candidate_of_a_max_pool_writes_the_positions_that_training_reads(row):
    frame = frame_of("squeezenet1_1", training=True)
    case = Case(frame, frame.program.steps[2 - len(row.pattern) : 2], FORWARD)
    row.write(replace(case, configuration=row.configurations(case)[0]))
    assert f"positions:{case.steps[-1].node}" in frame.array_sizes


def test_every_step_of_a_training_plan_is_explained_with_one_choice():
    frame = frame_of("squeezenet1_1", training=True)
    explained = explain(frame)
    chosen = [node for one in explained if one.chosen and one.direction == FORWARD for node in one.steps]
    assert sorted(chosen) == sorted(s.node for s in frame.program.steps if s.op not in (
        "softmax_cross_entropy", "global_avg_pool"))  # fmt: skip
    for one in explained:
        assert all(row.reason or row.microseconds > 0 for row in one.considered)
    assert any(one.direction == INPUT and one.chosen.startswith("fire") for one in explained)
    assert not frame.launches
