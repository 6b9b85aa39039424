"""Candidates by themselves: which cases they refuse, and the fast ones run as plain Python."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from core.gpu.compilation.compiler import compile_kernel
from core.gpu.kernel_entries import TABLE, WRITES
from core.gpu.single import prepare_update, reason_against
from core.laboratory.kernel_comparison import solve_update
from core.ops.activation import ACTIVATIONS
from core.ops.contract import Mode
from core.ops.op_table import LOSSES, OPS
from core.ops.registry import VENDOR_LIBRARIES, KernelCase
from core.optim.optimizer import scalars
from tests.golden.cases import ON_DEVICES
from tests.helpers.compare import poisoned, relative_error
from tests.helpers.emulated_gpu import Memory
from tests.helpers.shapes import MODE, case, cases, label, solve
from tests.helpers.single_kernels import allocate, check_case, entries, is_teaching, run_as_python, run_work

ANY = {"max_pool", "avg_pool", "softmax", "relu", "sigmoid", "add", "dense", "global_avg_pool", "dropout",
       "softmax_cross_entropy", "sigmoid_cross_entropy"}  # fmt: skip
"""Ops that are taken whatever their shape."""
NO_SHARED_CASE = ("low_latency", "gemv")


OURS = [r for r in TABLE.kernels if r.op in ANY and r.algorithm not in VENDOR_LIBRARIES]


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: "-".join(entry.key))
def test_an_entry_takes_a_case_or_says_why_not(entry):
    taken, fast = 0, {candidate.name for candidate, _ in entries(entry.op) if not is_teaching(candidate)}
    others = [one for one in OURS if one.key[:2] == entry.key[:2] and {one.algorithm, entry.algorithm} <= fast]
    for problem in cases(entry.op):
        reason = entry.refuses(problem)
        taken += not reason
        assert not reason or reason.endswith("."), (label(problem), reason)
        if reason and all(other.refuses(problem) for other in others):
            assert problem.activation, (label(problem), reason)
            assert entry.direction != "forward"
    assert taken or entry.algorithm in NO_SHARED_CASE


CASES = (
    case("avg_pool", (5, 4, 6), kernel=(3, 3), stride=(2, 2), padding=(1, 0, 0, 1), ceil_mode=True,
         count_include_pad=False),
    case("avg_pool", (4, 5, 8), kernel=(2, 3), stride=(1, 2), padding=(1, 1, 0, 1)),
    case("max_pool", (5, 4, 8), kernel=(3, 3), stride=(2, 2), padding=(1, 0, 0, 1), ceil_mode=True),
    case("depthwise_conv2d", (4, 5, 6), kernel=(3, 2), stride=(2, 1), padding=(1, 0, 0, 1)),
    case("depthwise_conv2d", (5, 3, 12), kernel=(3, 3), padding=(1, 1, 1, 1)),
    case("softmax", (11,)),
    case("softmax", (2, 2, 8)),
    *(case(name, (2, 3, 4)) for name in ACTIVATIONS),
    case("global_avg_pool", (3, 4, 5)),
    case("multiply", (3, 5, 13), (13,)), case("add", (2, 3, 4), (2, 3, 4)), case("concat", (2, 3, 8), (2, 3, 5)),
    case("dropout", (2, 3, 5), rate=0.4, key=3),
    case("softmax_cross_entropy", (5,), batch=3, label_smoothing=0.2, class_weights=(1.0, 2.0, 0.0, 0.5, 4.0)),
    case("softmax_cross_entropy", (5,), batch=3, targets=True, class_weights=(1.0, 2.0, 0.0, 0.5, 4.0)),
    case("sigmoid_cross_entropy", (6,), batch=3),
    case("batch_norm", (3, 4, 6), momentum=0.3),
)  # fmt: skip
PRODUCTS = (
    case("dense", (13,), units=11, batch=3),
    case("conv2d", (3, 2, 32), filters=48, kernel=(1, 1), groups=2, batch=1),
    case("conv2d", (3, 4, 32), filters=32, kernel=(2, 2), stride=(2, 1), padding=(1, 0, 0, 1), groups=8, bias=False),
)
ERRORS = {"float32": 1e-6, "mixed": 1e-2}
SUMS = 1e-5
"""Of a batch norm and a loss in float32."""


@pytest.mark.parametrize(
    ("problem", "precision"), [*product(CASES, sorted(ERRORS)), *product(PRODUCTS, ["mixed"])],
    ids=lambda value: value if isinstance(value, str) else f"{value.op} {label(value)}",
)
def test_a_candidate_run_as_plain_python_gives_the_references_results(problem, precision):
    solved, ran = solve(problem), set()
    limit = SUMS if precision == "float32" and problem.op in ("batch_norm", *LOSSES) else ERRORS[precision]
    for candidate, direction in entries(problem.op):
        roles = [role for role in WRITES[direction] if role in solved.wanted]
        problem = replace(problem, precision=precision)
        refused = problem.op.endswith(("conv2d", "dense")) and reason_against(candidate, direction, problem)
        if is_teaching(candidate) or not roles or refused:
            continue
        arrays = {name: value.copy() for name, value in solved.given.items()} | {"mode": MODE}
        arrays |= {role: solved.wanted[role].astype(np.float32) for role in ("out",)}
        arrays |= {role: poisoned(solved.wanted[role].shape) for role in roles if role not in solved.given}
        run_as_python(candidate, direction, problem, arrays)
        for role in roles:
            assert relative_error(arrays[role], solved.wanted[role]) < limit, (candidate.name, direction, role)
        ran.add(direction)
    assert {"forward", "backward_input"} <= ran, "core/gpu/candidates.py has no kernel that is not a teaching one"


def test_every_op_with_a_fast_kernel_is_run():
    fast = {op for op in OPS if any(not is_teaching(candidate) for candidate, _ in entries(op))}
    assert fast == {problem.op for problem in (*CASES, *PRODUCTS)}, "CASES needs each"


@pytest.mark.parametrize(("inputs", "units", "images"), [(12, 11, 3), (516, 5, 1), (8, 131, 8), (20, 9, 13)])
def test_dense_layers_of_few_images_run_as_plain_python_give_the_references_results(inputs, units, images):
    problem = case("dense", (inputs,), units=units, batch=images)
    found = list(check_case(problem, run_as_python, lambda one: one.name == "gemv"))
    directions = ["backward_input", "backward_weight"]
    assert [direction for _, direction, *_ in found] == ["forward"] * (images <= 8) + directions
    assert all(error < ERRORS["float32"] for *_, error, _ in found), found


def test_at_inference_dropout_keeps_all_and_a_batch_norm_its_statistics():
    for problem in (case("dropout", (2, 3, 5), rate=0.4), case("batch_norm", (3, 4, 6))):
        solved = solve(problem, mode=Mode())
        for candidate, direction in entries(problem.op):
            if direction == "forward":
                arrays = {**solved.given, "out": poisoned(solved.wanted["out"].shape), "mode": Mode()}
                run_as_python(candidate, direction, problem, arrays)
                assert relative_error(arrays["out"], solved.wanted["out"]) < SUMS, candidate.name


@pytest.mark.parametrize("optimizer", ON_DEVICES[1:], ids=lambda optimizer: optimizer.name)  # 8 s each
def test_an_update_run_as_plain_python_gives_the_references_weights_and_compiles(optimizer):
    memory = Memory(1 << 18)
    given, wanted = solve_update(KernelCase(optimizer.name, {}, ((37,),), (37,), 1), optimizer)
    at = {role: memory.place(given[role]) for role in ("gradient", *wanted)}
    now, make_room = scalars(optimizer, given["learning_rate"], given["step"]), partial(allocate, memory)
    work = prepare_update(optimizer, now, at, given["decayed"], 1, make_room)
    run_work(memory, work)
    assert all("st.global" in compile_kernel(launch.recipe, (8, 0))[0] for launch in work)
    for role, value in wanted.items():
        assert relative_error(memory.get(at[role], 37, np.float32), value) < ERRORS["float32"], role
