"""Describes the network and memory of a run before it starts: layers, shapes, parameters, operations, kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from core.device import Plan
from core.text import printable


def describe_network(plan: Plan) -> str:
    """Table of a plan's steps, one line each: costs of one photo forward, kernels of all directions."""
    kernels: dict[str, list[str]] = defaultdict(list)
    for layer, _, kernel in plan.kernels():
        if kernel not in kernels[layer]:
            kernels[layer].append(kernel)
    rows = [("layer", "op", "shape", "parameters", "MFLOP", "kB", "kernel")]
    flops = parameters = moved = 0
    for step in plan.program.steps:
        owned = sum(p.size for p in step.parameters)
        flops, parameters, moved = flops + step.cost.flops, parameters + owned, moved + step.cost.bytes
        op = step.op + (f"+{step.activation}" if step.activation else "")
        shape = "x".join(str(side) for side in step.output.shape) or "1"
        rows.append((step.node, op, shape, f"{owned:,}", f"{step.cost.flops / 1e6:.2f}",
                     f"{step.cost.bytes / 1e3:.0f}", ", ".join(kernels[step.node])))
    rows.append(("all", "", "", f"{parameters:,}", f"{flops / 1e6:.2f}", f"{moved / 1e3:.0f}", ""))
    return align_columns(rows, right=(3, 4, 5))


def describe_memory(rows: Mapping[str, int]) -> str:
    """Table of memory by purpose."""
    return align_columns([(name, f"{size / 2**20:.2f} MB") for name, size in rows.items()], right=(1,))


def align_columns(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Format rows as columns of printable text; the columns in `right` are right-aligned."""
    rows = [tuple(map(printable, row)) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
