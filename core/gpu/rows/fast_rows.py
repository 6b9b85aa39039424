"""The fast plan's kernels as rows of the table, each run by itself (`core.gpu.rows.single_step`)."""

from __future__ import annotations

from typing import Final

from core.errors import KernelUnavailable
from core.gpu.candidates import CANDIDATES
from core.gpu.driver.hosted import hosted
from core.gpu.frame import Frame
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.rows import single_step, update_row
from core.gpu.rows.single_step import Write
from core.gpu.select import FORWARD, Case
from core.ops.registry import Kernel, Tolerance
from core.optim.optimizer import OPTIMIZERS
from core.program import Step

THREE_PRODUCTS: Final = Tolerance(1e-5)
"""float32 as three tf32 products; sums of some thousand terms."""

LONG: Final = Tolerance(1e-4)
"""Sums over all pixels of a batch."""

EXACT: Final = Tolerance(1e-6)

WRITES: Final = {
    "forward": ("out", *single_step.UPDATED), "backward_input": ("dx", "dx2"), "backward_weight": ("dweight", "dbias"),
}  # fmt: skip


def write_named(name: str) -> Write:
    """The convolution's candidate of this name, or its refusal."""
    candidate = next(row for row in CANDIDATES.of(("conv2d",), FORWARD) if row.name == name)

    def write(frame: Frame, step: Step) -> None:
        case = Case(frame, (step,), FORWARD)
        with frame.comparing():
            reason = candidate.reason_against(case)
        if reason:
            raise KernelUnavailable(reason)
        candidate.write(case)

    write.__name__ = f"write_{name}"
    return write


def fast_row(op: str, direction: str, algorithm: str, write: Write, idea: str, tolerance: Tolerance = EXACT) -> Kernel:
    """One row; it refuses what its launches cannot be written for, and gradients of fused activations."""
    run = hosted(single_step.launcher(direction, write), *WRITES[direction])
    return Kernel(op, direction, "cuda", algorithm, run, idea, tolerance, single_step.refuses(write))


def both(op: str, idea: str, back: str) -> tuple[Kernel, Kernel]:
    """Forward and input gradient of an op without parameters, as the plan runs them."""
    return (
        fast_row(op, "forward", "fused", single_step.forward, idea),
        fast_row(op, "backward_input", "fused", single_step.backward_input, back),
    )


PRODUCTS: Final = tuple(
    row
    for op, idea in (("conv2d", "implicit product"), ("dense", "product"))
    for row in (
        fast_row(op, "forward", "tensor_core", write_named("implicit_gemm") if op == "conv2d" else single_step.forward,
                 f"{idea} by mma.sync, pixels through a cp.async ring, bias and ReLU on the way out", THREE_PRODUCTS),
        fast_row(op, "backward_input", "tensor_core", single_step.backward_input,
                 f"the same {idea} with the filters turned around", THREE_PRODUCTS),
        fast_row(op, "backward_weight", "tensor_core", single_step.backward_weight,
                 "sum over pixels split between blocks, parts added in order; the bias is one more product with ones",
                 LONG),
    )
)  # fmt: skip

NORMS: Final = (
    fast_row("batch_norm", "forward", "fused", single_step.forward,
             "partial sums of slices, added in order; then one pass, activation on the way out", LONG),
    fast_row("batch_norm", "backward_input", "fused", single_step.backward_input,
             "dx = a dy + b x + c, its factors from sums of dy and dy x (timed with the statistics of x)", LONG),
    fast_row("batch_norm", "backward_weight", "fused", single_step.backward_weight,
             "partial sums of dy and dy x, added in order (timed with the statistics of x)", LONG),
)  # fmt: skip

UPDATES: Final = tuple(
    Kernel(op, "update", "cuda", "fused", hosted(update_row.launch, *update_row.WRITES),
           "decay, moments, step and average in one pass; the gradient's norm before it, for clipping", EXACT,
           lambda case: None)
    for op in OPTIMIZERS
)  # fmt: skip

ROWS: Final = (
    *PRODUCTS,
    fast_row("conv2d", "forward", "halo", write_named("halo"),
             "3x3: each pixel and its neighbours are loaded once, the nine taps are offsets", THREE_PRODUCTS),
    *both("max_pool", "16 bytes of channels a lane; in training the winner's place is kept as a byte",
          "a lane gathers for a stride x stride block by the winners' places (timed with the pass that keeps them)"),
    *both("avg_pool", "16 bytes of channels a lane", "a lane gathers its share of every window that saw it"),
    *both("global_avg_pool", "eight rows of lanes a photo meet in shared memory", "a block a photo spreads evenly"),
    *both("softmax", "a warp a pixel, 16 bytes a lane", "a warp a pixel, one sum"),
    *(row for op in (*ACTIVATIONS, "multiply") for row in both(op, "16 bytes a thread", "16 bytes a thread")),
    *both("add", "16 bytes a lane, activation on the way out", "16 bytes a lane"),
    *both("dropout", "16 bytes a lane; every channel computes its own random bits", "the same bits again, no mask"),
    *NORMS,
    fast_row("softmax_cross_entropy", "forward", "fused", single_step.loss,
             "a block a photo: scores, loss and hit in shared memory", LONG),
    fast_row("softmax_cross_entropy", "backward_input", "fused", single_step.loss_gradient,
             "the loss and its gradient (dy is 1) in one launch", LONG),
    *UPDATES,
)  # fmt: skip
