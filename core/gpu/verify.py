"""Compares every step of a run with the NumPy reference and names the first that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from core.ops.activation import ACTIVATIONS
from core.ops.contract import Array, Call, Mode, Result
from core.ops.network import compare
from core.ops.op_table import LOSSES, OPS
from core.program import Program, Value

LIMITS = {"mixed": 3e-2, "tf32": 3e-3, "float32": 1e-4}
"""Largest error of a step relative to its largest value, by precision."""

Read = Callable[[Value, bool], Array]


def verify_program(
    program: Program, weights: Mapping[str, Array], gradients: Mapping[str, Array], read: Read, precision: str,
    mode: Mode, photos: int,
) -> None:  # fmt: skip
    """Compare each step with its reference on the GPU's own inputs. Raises LeafClinicError at the first difference.

    read(value, gradient) returns float32 ``(batch, *shape)`` of the last step; `gradients`: of the trained parameters.
    """
    limit = LIMITS[precision]
    results: dict[str, tuple[Call, Result]] = {}
    for step in program.steps:
        if step.op in LOSSES or step.output == program.output:
            continue
        inputs = [read(value, False)[:photos].astype(np.float64) for value in step.inputs]
        owned = {p.role: np.asarray(weights[f"{step.node}.{p.role}"], np.float64) for p in step.parameters}
        call = Call(step.attributes, inputs, owned, mode)
        result = OPS[step.op].forward(call)
        results[step.node] = call, result
        wanted = ACTIVATIONS[step.activation].value(result.output) if step.activation else result.output
        compare(read(step.output, False)[:photos], wanted, f"{step.node} ({step.op}) forward", limit, 1e-6)
    for step in reversed(program.steps):
        names = {p.role: f"{step.node}.{p.role}" for p in step.parameters}
        trained = {role: gradients[name] for role, name in names.items() if name in gradients}
        if step.node not in results or not trained:
            continue
        dy = read(step.output, True)[:photos].astype(np.float64)
        exact = OPS[step.op].backward(*results[step.node], dy).parameters
        floor = max(1e-6, *(float(np.abs(w).max(initial=0.0)) for w in exact.values()))  # a bias's may be all zero
        for role, got in trained.items():
            compare(got, exact[role], f"the gradient of {step.node}.{role}", limit, floor)
