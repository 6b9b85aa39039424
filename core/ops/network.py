"""Forward and backward of a whole graph by the ops' references, with which every plan is compared.

Runs in the dtype of the photos and weights it is given; use float64 to measure errors. Labels are int ``(N,)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from core.errors import LeafClinicError
from core.graph import LABEL, Graph, Node
from core.ops.contract import Array, Arrays, Call, Mode, Result
from core.ops.op_table import OPS
from core.ops.registry import KernelCase

Use: TypeAlias = Callable[[str, Array], Array]
"""Given the name of a node and its output, returns the output that the nodes after it read."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The values and gradients of one forward and backward traversal.

    loss: mean over the batch; correct: photos whose largest logit is the label's, or all of whose labels are right;
    values: by node name; gradients: of every trained parameter, by full name; updated: new running statistics, by full
    name.
    """

    loss: float
    correct: int
    values: Arrays
    gradients: Arrays
    updated: Arrays


def forward(
    graph: Graph, weights: Arrays, photos: Array, mode: Mode | None = None, use: Use | None = None
) -> dict[str, Array]:
    """Return the output of every node, by name. photos: normalised ``(N, H, W, C)``."""
    return {name: result.output for name, result in _run(graph, weights, photos, mode or Mode(), use=use).items()}


def loss_and_gradients(
    graph: Graph, weights: Arrays, photos: Array, labels: Array, mode: Mode | None = None,
    targets: Array | None = None, use: Use | None = None,
) -> Trace:  # fmt: skip
    """Compute loss and gradients of a graph with its loss (`core.ops.builder.with_loss`), which may read `targets`."""
    mode = mode or Mode(training=True)
    results = _run(graph, weights, photos, mode, labels, targets, use)
    values = {name: result.output for name, result in results.items()}
    loss, logits = graph.nodes[-1], values[graph.output]
    if loss.op == "sigmoid_cross_entropy" and targets is not None:
        right = ((logits > 0) == (targets > 0.5)).all(-1) & (labels >= 0)
    else:
        right = logits.argmax(-1) == labels
    of_values = {loss.name: np.ones_like(values[loss.name])}
    gradients = _run_backward(graph, weights, {**results, LABEL: Result(labels)}, of_values, mode)
    return Trace(
        loss=float(values[loss.name].sum()), correct=int(right.sum()), values=values, gradients=gradients,
        updated={f"{node}.{role}": a for node, result in results.items() for role, a in result.updated.items()},
    )


def logit_gradient(graph: Graph, weights: Arrays, features: Array, index: int) -> Array:
    """Return the gradient of logit `index` of the first row, with respect to the output of the graph's first node."""
    results = _run(graph, weights, features, Mode())
    of_values = {graph.output: np.zeros_like(results[graph.output].output)}
    of_values[graph.output][0, index] = 1
    _run_backward(graph, weights, results, of_values, Mode())
    return of_values[graph.nodes[0].name]


def _run_backward(
    graph: Graph, weights: Arrays, results: Mapping[str, Result], of_values: dict[str, Array], mode: Mode
) -> dict[str, Array]:
    """Return the gradients of the parameters; those of the values are added to `of_values`, which has the last one."""
    gradients: dict[str, Array] = {}
    for node in reversed(graph.nodes[1:]):
        if node.name not in of_values:
            continue
        inputs = [results[i].output for i in node.inputs]  # a gradient needs no targets
        call = Call(node.attributes, inputs, _owned(node, weights), mode)
        got = OPS[node.op].backward(call, results[node.name], of_values[node.name])
        gradients |= {f"{node.name}.{role}": array for role, array in got.parameters.items()}
        for name, part in zip(node.inputs, got.inputs, strict=True):
            if part is not None:
                of_values[name] = of_values[name] + part if name in of_values else part
    return gradients


def _run(
    graph: Graph, weights: Arrays, photos: Array, mode: Mode, labels: Array | None = None,
    targets: Array | None = None, use: Use | None = None,
) -> Mapping[str, Result]:  # fmt: skip
    results = {graph.nodes[0].name: Result(photos)}
    for node in graph.nodes[1:]:
        inputs = [labels if i == LABEL else results[i].output for i in node.inputs]
        inputs += [targets] if node.attributes.get("targets") else []
        if any(x is None for x in inputs):
            raise ValueError(f"{node.name!r} needs the labels of the photos, and the targets of a teacher.")
        known = [x for x in inputs if x is not None]
        result = OPS[node.op].forward(Call(node.attributes, known, _owned(node, weights), mode))
        results[node.name] = replace(result, output=use(node.name, result.output)) if use else result
    return results


def _owned(node: Node, weights: Arrays) -> dict[str, Array]:
    return {p.role: weights[f"{node.name}.{p.role}"] for p in node.parameters}


def compute_case(case: KernelCase, arrays: dict[str, Any], mode: Mode, backward: bool = True) -> dict[str, Array]:
    """Return all results of a case in the dtype of its arrays, by their names (`core.ops.registry.Kernel`)."""
    rule, names = OPS[case.op], case.names
    inputs = [arrays[name] for name in (*names, "labels", "targets") if name in arrays]
    parameters = {p.role: arrays[p.role] for p in rule.parameters(case.attributes, case.inputs)}
    call = Call(case.attributes, inputs, parameters, mode)
    result = rule.forward(call)
    activated = Call({}, [result.output])
    end = OPS[case.activation].forward(activated) if case.activation else result
    found = {"out": end.output, **result.updated}
    if not backward:
        return found
    dy: Any = arrays["dy"]
    if case.activation:
        dy = OPS[case.activation].backward(activated, end, dy).inputs[0]
    got = rule.backward(call, result, dy)
    found |= {f"d{name}": dx for name, dx in zip(names, got.inputs, strict=False) if dx is not None}
    return found | {f"d{role}": gradient for role, gradient in got.parameters.items()}


def compare(got: Array, wanted: Array, what: str, tolerance: float, floor: float = 1e-30) -> None:
    """Raise LeafClinicError where `got` differs by over `tolerance` of the largest wanted value (at least `floor`)."""
    error = np.abs(np.asarray(got, np.float64) - wanted)
    scale = max(float(np.abs(wanted).max(initial=0)), floor)
    worst = float(error.max(initial=0)) / scale
    if not worst <= tolerance:
        place = np.unravel_index(int(np.nan_to_num(error, nan=np.inf).argmax()), error.shape)
        raise LeafClinicError(
            f"Verification failed: {what} differs from the reference by {worst:.1e} of its largest value, most at "
            f"{tuple(int(i) for i in place)}. This is a bug in LeafClinic. Please report it with this message, "
            "and train on another device (--device)."
        )
