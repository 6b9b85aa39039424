"""Candidates for sums, products, concatenations, activations and dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from core.gpu.ops.elementwise import combine, image_sum, naive
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.select import FORWARD, INPUT, Candidate, Case
from core.gpu.teaching.candidates import by_names, in_order, teach
from core.ops.activation import ACTIVATIONS as REFERENCES

MULTIPLY_BACKWARD: Final = in_order(
    by_names(naive.naive_scale, x="dy", factors="x2", out="dx"), by_names(naive.naive_factor_gradient, out="dx2")
)


def _vector(op: str, direction: str, write: Callable[[Case], None], idea: str) -> Candidate:
    return Candidate("vector", (op,), direction, write, idea, refuses=combine.refuse_padded)


CANDIDATES: Final = (
    *(
        teach("naive", op, direction, launch, "one thread per element")
        for op in ACTIVATIONS
        for direction, launch in (
            (FORWARD, by_names(naive.make_activation(op))),
            (INPUT, by_names(naive.make_gradient(op), y="x" if REFERENCES[op].needs_input else "out")),
        )
    ),
    teach("naive", "multiply", FORWARD, by_names(naive.naive_scale, factors="x2"), "one thread per element"),
    teach("naive", "multiply", INPUT, MULTIPLY_BACKWARD, "one thread per element, and one per factor"),
    teach("naive", "add", FORWARD, by_names(naive.naive_add, a="x", b="x2"), "one thread per element"),
    teach("naive", "add", INPUT, naive.launch_copies, "two copies"),
    teach("naive", "concat", FORWARD, naive.launch_concat, "one copy per input"),
    teach("naive", "concat", INPUT, naive.launch_copies, "one copy per input"),
    teach("naive", "dropout", FORWARD, by_names(naive.naive_dropout),
          "one thread per element computes its own random bits"),
    teach("naive", "dropout", INPUT, by_names(naive.naive_dropout, x="dy", out="dx"),
          "the same random bits are computed again; no mask is stored"),
    *(
        _vector(op, direction, write, idea)
        for op in ("add", *ACTIVATIONS)
        for direction, write, idea in (
            (FORWARD, combine.forward, "16 bytes per thread, activation in the epilogue"),
            (INPUT, combine.backward, "16 bytes per thread, with the gradient of the previous activation"),
        )
    ),
    _vector("multiply", FORWARD, combine.forward,
              "16 bytes per thread, the image's factors from cache"),
    _vector("multiply", INPUT, image_sum.multiply_backward,
              "16 bytes per thread; one block per 32 vectors of an image for the factors' gradient"),
    _vector("concat", FORWARD, combine.concat_forward, "one copy per input, 16 bytes per thread"),
    _vector("concat", INPUT, combine.backward, "one copy per input, 16 bytes per thread"),
    _vector("dropout", FORWARD, combine.dropout,
              "16 bytes per thread; every channel computes its own random bits"),
    _vector("dropout", INPUT, combine.dropout,
              "the same random bits are computed again; no mask is stored"),
)  # fmt: skip
