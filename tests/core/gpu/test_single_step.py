"""Steps of the fast plan by themselves: which cases they refuse, and pools and softmax run as plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.gpu import single_step
from core.gpu.fast_rows import ROWS
from tests.helpers.compare import relative_error
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.shapes import case, cases, label, solve

WHATEVER = {"max_pool", "avg_pool", "softmax", "relu", "sigmoid", "add", "dense", "global_avg_pool"}
"""Ops that are taken whatever their shape."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.key))
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
    case("sigmoid", (2, 3, 4)),
    case("global_avg_pool", (3, 4, 5)),
)  # fmt: skip
ERRORS = {"float32": 1e-6, "mixed": 1e-2}


@pytest.mark.parametrize("precision", sorted(ERRORS))
@pytest.mark.parametrize("problem", CASES, ids=label)
def test_a_step_run_as_plain_python_gives_the_references_results(problem, precision):
    solved, memory = solve(problem), Memory(1 << 18)
    given = {**solved.given, "out": solved.wanted["out"].astype(np.float32)}
    for direction, write, role in (
        ("forward", single_step.forward, "out"), ("backward_input", single_step.backward_input, "dx"),
    ):  # fmt: skip
        at = {name: memory.reserve(4 * array.size) for name, array in given.items()}
        at[role] = memory.reserve(4 * solved.wanted[role].size)
        for name, array in given.items():
            if name != role:
                memory.put(at[name], array)

        def allocate(sizes, contents):
            made = {name: memory.reserve(size) for name, size in sizes.items()}
            for name, values in contents.items():
                memory.put(made[name], values)
            return made

        frame = single_step.new_frame(replace(problem, precision=precision), 1, 227 << 10)
        machine = Machine(memory)
        for launch in single_step.prepare(frame, direction, write, at, allocate).launches:
            machine.run(launch)
        got = memory.get(at[role], solved.wanted[role].size, np.float32).reshape(solved.wanted[role].shape)
        assert relative_error(got, solved.wanted[role]) < ERRORS[precision], direction
