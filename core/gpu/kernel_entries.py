"""Registry entries of all GPU kernels, each run by itself: for laboratory, Kernels page, benchmarks and tests.

Entries are the candidates of one step (`core.gpu.candidates`). Roles of the arrays: `x` (`x2`, `x3` ...), `labels`,
parameters by role, `out`, `dy`, and the gradients `dx` (`dx2` ...), `dweight`, `dbias`. `out` is also an input of the
gradients of activations. Dropout and batch norm read `mode` (`core.ops.contract.Mode`). Arrays may be on the host or
the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from core.config import OPTIMIZERS
from core.gpu import single
from core.gpu.candidates import CANDIDATES
from core.gpu.prepared import hosted
from core.gpu.select import BF16, BY_NAME, FAST, WEIGHT, Candidate
from core.gpu.single import UPDATE_WRITES, UPDATED, directions_of, reason_against, run_update, runner
from core.gpu.teaching.kernel import TeachingKernel
from core.ops.op_table import LOSSES
from core.ops.registry import Kernel, KernelCase, Registry

SUMS: Final = 1e-4
"""Sums over all pixels of a batch in float32, and transformed convolutions, which lose a few bits."""
PRODUCTS: Final = 1e-5
"""Sums of some thousand terms, in float32 or as three tf32 products."""
EXACT: Final = 1e-6
ROUNDED: Final = 2e-2
"""Factors rounded to bf16."""

WITH_PRODUCTS: Final = ("conv2d", "depthwise_conv2d", "dense", "matmul")
WRITES: Final = {
    "forward": ("out", *UPDATED), "backward_input": ("dx", "dx2", "dx3", "dx4"),
    "backward_weight": ("dweight", "dbias"),
}  # fmt: skip


def tolerance_of(candidate: Candidate, direction: str) -> float:
    """Largest accepted relative error of a candidate in a direction."""
    op = candidate.pattern[0]
    if candidate.arithmetics == BF16:
        return ROUNDED
    if direction == WEIGHT or op in ("batch_norm", *LOSSES) or candidate.level in BY_NAME:
        return SUMS
    return PRODUCTS if op in WITH_PRODUCTS or candidate.level not in FAST else EXACT


def source_file(kernel: Kernel, cases: Iterable[KernelCase]) -> Path:
    """The file of an entry's kernel, or of what launches it if it takes none of the cases."""
    candidate = next(
        c for c in CANDIDATES.all
        if c.pattern == (kernel.op,) and c.name == kernel.algorithm and kernel.direction in directions_of(c)
    )  # fmt: skip
    case = next((case for case in cases if candidate.level in FAST and not kernel.refuses(case)), None)
    if case is not None:
        frame = single.new_frame(candidate, kernel.direction, case)
        single.write(candidate, kernel.direction, frame)
        launches = [launch for launch in frame.launches if launch.direction == kernel.direction] or frame.launches
        return Path(__file__).parent.joinpath(*launches[0].recipe.module.split(".")).with_suffix(".py")
    write: Any = candidate.write
    while not hasattr(write, "__code__"):  # the launcher of one or several teaching kernels
        inner = write.args[-1] if isinstance(write, partial) else write.py_func
        inner = inner[0] if isinstance(inner, tuple) else inner
        known = isinstance(inner, TeachingKernel) or callable(inner)  # else it is a number or an array
        write = inner if known else write.func
    return Path(write.__code__.co_filename)


UPDATES: Final = tuple(
    Kernel(op, "update", "cuda", "fused", hosted(run_update, *UPDATE_WRITES),
           "decay, moments, step and average in one pass; the gradient's norm before it, for clipping", EXACT)
    for op in OPTIMIZERS
)  # fmt: skip

TABLE: Final = Registry((
    *(
        Kernel(one.pattern[0], direction, "cuda", one.name, hosted(runner(one, direction), *WRITES[direction]),
               one.idea, tolerance_of(one, direction), partial(reason_against, one, direction))
        for one in CANDIDATES.all for direction in directions_of(one)
    ),
    *UPDATES,
))  # fmt: skip
