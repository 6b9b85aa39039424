"""Steps of the fast plan by themselves: which cases they refuse, and pools and softmax run as plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.gpu.rows import single_step, update_row
from core.gpu.rows.fast_rows import ROWS
from core.ops.activation import ACTIVATIONS
from core.ops.contract import Mode
from core.optim.optimizer import OPTIMIZERS, Optimizer, initial_state, scalars, update
from tests.helpers.compare import relative_error
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.shapes import MODE, case, cases, label, solve

WHATEVER = {"max_pool", "avg_pool", "softmax", "relu", "sigmoid", "add", "dense", "global_avg_pool", "dropout",
            "softmax_cross_entropy"}
"""Ops that are taken whatever their shape."""


@pytest.mark.parametrize("row", [r for r in ROWS if r.op not in OPTIMIZERS], ids=lambda row: "-".join(row.key))
def test_a_row_takes_a_case_or_says_why_not(row):
    taken = 0
    for problem in cases(row.op):
        reason = row.refuses(problem)
        taken += reason is None
        assert reason is None or reason.endswith("."), (label(problem), reason)
        if reason is not None and row.op in WHATEVER:
            assert problem.activation, (label(problem), reason)
            assert row.direction != "forward"
    assert taken


CASES = (
    case("avg_pool", (5, 4, 6), kernel=(3, 3), stride=(2, 2), padding=(1, 0, 0, 1), ceil_mode=True,
         count_include_pad=False),
    case("avg_pool", (4, 5, 8), kernel=(2, 3), stride=(1, 2), padding=(1, 1, 0, 1)),
    case("max_pool", (5, 4, 8), kernel=(3, 3), stride=(2, 2), ceil_mode=True),
    case("softmax", (11,)),
    case("softmax", (2, 2, 8)),
    *(case(name, (2, 3, 4)) for name in ACTIVATIONS),
    case("global_avg_pool", (3, 4, 5)),
    case("multiply", (3, 5, 13), (13,)),
    case("dropout", (2, 3, 5), rate=0.4, key=3),
    case("softmax_cross_entropy", (5,), batch=3, label_smoothing=0.2, class_weights=(1.0, 2.0, 0.0, 0.5, 4.0)),
    case("softmax_cross_entropy", (5,), batch=3, taught=True, class_weights=(1.0, 2.0, 0.0, 0.5, 4.0)),
    case("batch_norm", (3, 4, 6), momentum=0.3),
)  # fmt: skip
ERRORS = {"float32": 1e-6, "mixed": 1e-2}
SUMS = 1e-5
"""Of a batch norm and a loss in float32."""
WRITES = {
    "forward": (single_step.forward, ("out", *single_step.UPDATED)),
    "backward_input": (single_step.backward_input, ("dx", "dx2")),
    "backward_weight": (single_step.backward_weight, ("dweight", "dbias")),
}
LOSS_OPS = ("softmax_cross_entropy",)
LOSS = {"forward": single_step.loss, "backward_input": single_step.loss_gradient}


def run(memory, work):
    """Copies and launches in their order."""
    machine = Machine(memory)
    for copy in work.before:
        memory.bytes[copy.target : copy.target + copy.bytes] = memory.bytes[copy.source : copy.source + copy.bytes]
    for launch in work.launches:
        machine.run(launch)
    for copy in work.after:
        memory.bytes[copy.target : copy.target + copy.bytes] = memory.bytes[copy.source : copy.source + copy.bytes]


def allocator(memory):
    def allocate(sizes, contents):
        made = {name: memory.reserve(size) for name, size in sizes.items()}
        for name, values in contents.items():
            memory.put(made[name], values)
        return made

    return allocate


def put_all(memory, arrays, left_out=()):
    """Addresses of arrays by name; those left out are full of NaN."""
    at = {name: memory.reserve(4 * array.size) for name, array in arrays.items()}
    for name, array in arrays.items():
        if name not in left_out:
            memory.put(at[name], array)
    return at


@pytest.mark.parametrize("precision", sorted(ERRORS))
@pytest.mark.parametrize("problem", CASES, ids=label)
def test_a_step_run_as_plain_python_gives_the_references_results(problem, precision):
    solved = solve(problem)
    results = {name: solved.wanted[name].astype(np.float32) for name in solved.wanted}
    limit = SUMS if precision == "float32" and problem.op in ("batch_norm", *LOSS_OPS) else ERRORS[precision]
    for direction, (write, roles) in WRITES.items():
        roles = [role for role in roles if role in results]
        if not roles:
            continue
        memory, write = Memory(1 << 18), LOSS[direction] if problem.op in LOSS_OPS else write
        left_out = [role for role in roles if role not in solved.given]
        at = put_all(memory, {**results, **solved.given}, left_out)
        frame = single_step.new_frame(replace(problem, precision=precision), 1, 227 << 10, MODE)
        run(memory, single_step.prepare(frame, direction, write, at, allocator(memory), MODE))
        for role in roles:
            got = memory.get(at[role], results[role].size, np.float32).reshape(results[role].shape)
            assert relative_error(got, solved.wanted[role]) < limit, (direction, role)


def test_at_inference_dropout_keeps_all_and_a_batch_norm_its_statistics():
    for problem in (case("dropout", (2, 3, 5), rate=0.4), case("batch_norm", (3, 4, 6))):
        solved, memory = solve(problem, mode=Mode()), Memory(1 << 18)
        at = put_all(memory, {**solved.given, "out": solved.wanted["out"]}, ["out"])
        frame = single_step.new_frame(problem, 1, 227 << 10, Mode())
        run(memory, single_step.prepare(frame, "forward", single_step.forward, at, allocator(memory), Mode()))
        got = memory.get(at["out"], solved.wanted["out"].size, np.float32).reshape(solved.wanted["out"].shape)
        assert relative_error(got, solved.wanted["out"]) < SUMS


@pytest.mark.parametrize(("name", "clip"), [("sgd", 0.5), ("adamw", 0.0)])  # 8 s each
def test_an_update_run_as_plain_python_gives_the_references_weights(name, clip):
    optimizer = Optimizer(name, weight_decay=0.1, clip_norm=clip, average=0.9)
    draw, memory = np.random.default_rng(0), Memory(1 << 18)
    weights, gradient = (draw.normal(size=37).astype(np.float32) for _ in range(2))
    decayed = np.arange(37) < 20
    state = {k: np.abs(draw.normal(size=37)).astype(np.float32) for k in initial_state(optimizer, weights)}
    exact = {k: v.astype(np.float64) for k, v in state.items()}
    wanted, moved = update(optimizer, weights.astype(np.float64), gradient.astype(np.float64), exact, decayed, 0.01, 3)
    at = put_all(memory, {"weights": weights, "gradient": gradient, **state})
    now = scalars(optimizer, 0.01, 3)
    run(memory, update_row.prepare(optimizer, now, at, decayed.astype(np.float32), 37, 1, allocator(memory)))
    for role, value in {"weights": wanted, **moved}.items():
        assert relative_error(memory.get(at[role], 37, np.float32), value) < ERRORS["float32"], role
