"""All kernels of the CPU, and the choice of kernels for a plan. The laboratory adds its own (`core.laboratory`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from core.cpu import backward, depthwise, forward, im2col, naive, products
from core.cpu.lowering import Writers
from core.cpu.single import run_single
from core.errors import KernelUnavailable
from core.ops.activation import ACTIVATIONS
from core.ops.contract import Mode, no_parameters
from core.ops.network import compute_case
from core.ops.op_table import LOSSES, OPS
from core.ops.registry import Kernel, KernelCase, Refusal, Registry
from core.program import Program

FORWARD, INPUT, WEIGHT = "forward", "backward_input", "backward_weight"

PRODUCTS: Final = ("conv2d", "depthwise_conv2d", "dense")
"""Ops with more than one algorithm."""

_FUSED: Final[Mapping[str, Writers]] = {
    "conv2d": Writers(products.write_forward, products.write_backward),
    "dense": Writers(products.write_forward, products.write_backward),
    "depthwise_conv2d": Writers(depthwise.write_forward, depthwise.write_backward),
    "max_pool": Writers(forward.write_max_pool, backward.write_pool),
    "avg_pool": Writers(forward.write_avg_pool, backward.write_pool),
    "global_avg_pool": Writers(forward.write_avg_pool, backward.write_pool),
    **dict.fromkeys(ACTIVATIONS, Writers(forward.write_activation, backward.write_activation)),
    "softmax": Writers(forward.write_softmax, backward.write_softmax),
    **dict.fromkeys(LOSSES, Writers(forward.write_loss, backward.write_loss)),
    "concat": Writers(forward.write_concat, backward.write_concat),
    "add": Writers(forward.write_add, backward.write_add),
    "multiply": Writers(forward.write_multiply, backward.write_multiply),
    "batch_norm": Writers(forward.write_batch_norm, backward.write_batch_norm),
    "dropout": Writers(forward.write_dropout, backward.write_dropout),
    "flatten": Writers(forward.write_flatten, backward.write_flatten),
}
"""The fast kernels of every op."""

_DIRECTIONS: Final = {
    op: (FORWARD, INPUT) if OPS[op].parameters is no_parameters else (FORWARD, INPUT, WEIGHT) for op in _FUSED
}

_FAST: Final = {
    ("conv2d", FORWARD): "tiles of sums in registers; bias and ReLU in the epilogue",
    ("conv2d", INPUT): "the same tiles on the rotated filter, one plain convolution for each phase of the stride",
    ("conv2d", WEIGHT): "the same tiles summed over 220 pixels at a time; every thread sums its own images",
    ("dense", FORWARD): "a convolution whose window is the whole input",
    ("dense", INPUT): "the same tiles on the rotated filter",
    ("dense", WEIGHT): "the same tiles, one pixel high",
    ("depthwise_conv2d", FORWARD): "a vector of channels for eight pixels in registers; bias and ReLU in the epilogue",
    ("depthwise_conv2d", INPUT): "the same tile on the rotated filter, one convolution for each phase of the stride",
    ("depthwise_conv2d", WEIGHT): "the taps of a filter's row in registers, summed over 220 pixels at a time",
    ("max_pool", FORWARD): "all channels of a pixel at once; the index of the maximum is kept for backward",
    ("max_pool", INPUT): "every input pixel gathers from the windows whose maximum it is: no write conflicts",
    ("batch_norm", FORWARD): "sums per image, one merge in float64 per batch, then scale, shift and ReLU in one pass",
    ("batch_norm", INPUT): "two sums per image, one merge, then one pass",
    ("batch_norm", WEIGHT): "two sums per image, one merge in float64",
}
"""Descriptions of the fast kernels; all others are one vectorised pass."""


def results_of(direction: str, names: Iterable[str]) -> list[str]:
    """Return the results that are compared after a direction, of the names of all results."""
    return ["out"] if direction == FORWARD else [
        name for name in names if name[0] == "d" and name.startswith("dx") is (direction == INPUT)]


def _run_reference(case: KernelCase, arrays: dict[str, Any], direction: str) -> None:
    found = compute_case(case, arrays, arrays.get("mode", Mode(training=True)), direction != FORWARD)
    for name in found if direction == FORWARD else results_of(direction, found):
        arrays[name][...] = found[name]


def _kernels_of(
    ops: Iterable[str], algorithm: str, writers: Writers, idea: str, refuses: Refusal = lambda case: ""
) -> Iterator[Kernel]:
    for op in ops:
        for direction in _DIRECTIONS[op]:
            run = partial(run_single, direction=direction, writers=writers)
            yield Kernel(op, direction, "cpu", algorithm, run, idea, 2e-5, refuses, writers)


_NAIVE: Final = Writers(naive.write_forward, naive.write_backward)
_IM2COL: Final = Writers(im2col.write_forward, im2col.write_backward, im2col.matrix_bytes)

CPU: Final = Registry((
    *(Kernel(op, direction, "cpu", "reference", partial(_run_reference, direction=direction),
             "plain NumPy, the reference") for op, directions in _DIRECTIONS.items() for direction in directions),
    *_kernels_of(PRODUCTS, "naive", _NAIVE, "the definition as plain loops, bounds checked at every tap"),
    *_kernels_of(("conv2d", "dense"), "im2col", _IM2COL, "windows unfolded into a matrix, one product",
                  lambda case: "It has no groups." if case.attributes.get("groups", 1) != 1 else ""),
    *(replace(kernel, idea=_FAST.get((op, kernel.direction), "one pass over all channels of a pixel"))
      for op, writers in _FUSED.items()
      for kernel in _kernels_of([op], "tiled" if op in PRODUCTS else "fused", writers, "")),
))  # fmt: skip

PLANS: Final = Registry(kernel for kernel in CPU.kernels if kernel.writers is not None)
"""The kernels that a plan chooses from."""

ALGORITHMS: Final = ("auto", *(kernel.algorithm for kernel in PLANS.of("conv2d", FORWARD)))
"""Algorithms that a plan accepts."""


def choose_writers(program: Program, batch: int, algorithm: str) -> dict[str, Writers]:
    """Choose the writers of each step, by its node: its fastest kernel up to the algorithm, as on a GPU.

    Raises KernelUnavailable naming the first step without one in every direction needed.
    """
    chosen: dict[str, Writers] = {}
    for step in program.steps:
        directions = _DIRECTIONS.get(step.op, (FORWARD,))[: None if program.training else 1]
        shapes = tuple(value.shape for value in step.inputs)
        case = KernelCase(step.op, step.attributes, shapes, step.output.shape, batch, step.activation)
        try:
            kernels = [PLANS.choose(case, direction, algorithm) for direction in directions]
        except KernelUnavailable as error:
            raise KernelUnavailable(f"The CPU cannot run the step {step.node} by {algorithm!r}. {error}") from error
        chosen[step.node] = kernels[0].writers
    return chosen
