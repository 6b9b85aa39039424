"""Teaching kernels as candidates: each computes one step on plain float32 arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from core.gpu.select import Candidate, Case
from core.gpu.teaching.launchers import Launcher
from core.gpu.teaching.step_arrays import StepArrays
from core.ops.registry import KernelCase

FLOAT32: Final = frozenset(("float32", "fma"))


def teach(
    name: str, op: str, direction: str, launch: Launcher, idea: str,
    refuses: Callable[[KernelCase], str] = lambda problem: "", level: str = "",
) -> Candidate:  # fmt: skip
    """The candidate of a launcher; its implementation level is its name, unless `level` says otherwise."""
    return Candidate(
        name, (op,), direction, partial(_write, name, launch), idea, level or name, 0.02,
        lambda case: refuses(problem_of(case)), arithmetics=FLOAT32,
    )  # fmt: skip


def problem_of(case: Case) -> KernelCase:
    """What a launcher is told of its step."""
    step = case.step
    shapes = tuple(value.shape for value in step.inputs)
    return KernelCase(step.op, step.attributes, shapes, step.output.shape, case.frame.batch)


def _write(name: str, launch: Launcher, case: Case) -> None:
    arrays = StepArrays(case, name)
    launch(problem_of(case), arrays)
    arrays.finish()
