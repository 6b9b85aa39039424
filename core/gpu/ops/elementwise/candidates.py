"""Candidates for sums, products, concatenations, activations and dropout."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.elementwise import launches
from core.gpu.ops.elementwise.activations import ACTIVATIONS
from core.gpu.select import FORWARD, INPUT, Candidate

CANDIDATES: Final = (
    *(
        Candidate("vector", (op,), direction, write, idea)
        for op in ("add", *ACTIVATIONS)
        for direction, write, idea in (
            (FORWARD, launches.forward, "16 bytes a thread, activation on the way out"),
            (INPUT, launches.backward, "16 bytes a thread, and the gradient of the activation before it"),
        )
    ),
    Candidate("vector", ("multiply",), FORWARD, launches.forward, "16 bytes a thread, the image's factors from cache"),
    Candidate("vector", ("multiply",), INPUT, launches.multiply_backward,
              "16 bytes a thread; the factors' gradient by a block for 32 vectors of an image"),
    Candidate("vector", ("concat",), FORWARD, launches.concat_forward, "one copy per input, 16 bytes a thread"),
    Candidate("vector", ("concat",), INPUT, launches.concat_backward, "one copy per input, 16 bytes a thread"),
    Candidate("vector", ("dropout",), FORWARD, launches.dropout_forward,
              "16 bytes a thread; every channel computes its own random bits"),
    Candidate("vector", ("dropout",), INPUT, launches.dropout_backward, "the same bits again, no mask"),
)  # fmt: skip
