"""Every teaching kernel on the GPU itself, on the whole shared list of odd cases."""

from __future__ import annotations

import pytest

from core.gpu.fast_rows import ROWS
from core.gpu.table import TEACHING


@pytest.mark.gpu
@pytest.mark.parametrize("op", sorted({row.op for row in TEACHING}))
def test_every_rung_agrees_with_the_reference(op):
    from tests.helpers.ladder import check

    errors = [(row, text, error) for row, text, error in check(op, 10**9)]
    assert errors
    wrong = [(row.key, text, error) for row, text, error in errors if not error <= row.tolerance.relative]
    assert not wrong, wrong


@pytest.mark.gpu
@pytest.mark.parametrize("op", sorted({row.op for row in ROWS}))
def test_every_kernel_of_the_fast_plan_agrees_with_the_reference(op):
    from tests.helpers.ladder import check

    errors = [(row, text, error) for row, text, error in check(op, 10**9, ROWS)]
    assert {row.key for row, _, _ in errors} == {row.key for row in ROWS if row.op == op}
    wrong = [(row.key, text, error) for row, text, error in errors if not error <= row.tolerance.relative]
    assert not wrong, wrong
