"""What the teaching kernels read of a case, and what none of them computes."""

from __future__ import annotations

from core.ops.registry import Case
from core.ops.window import read_window


def geometry(case: Case) -> tuple[tuple[int, int], tuple[int, int]]:
    """(stride, padding at the top and left) of a case, as the kernels take them."""
    window = read_window(case.attributes)
    return window.stride, (window.padding[0], window.padding[1])


def groups(case: Case) -> int:
    return int(str(case.attributes.get("groups", 1)))


def refuse_fused(case: Case) -> str | None:
    """The teaching kernels do one thing each, in float32."""
    if case.activation:
        return f"The {case.activation} after it is a kernel of its own at this level."
    if case.precision != "float32":
        return f"This level computes in float32, not in {case.precision}."
    return None
