"""Candidates for sums, concatenations, activations and dropout."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.elementwise import launches
from core.gpu.select import FORWARD, INPUT, Candidate

CANDIDATES: Final = (
    *(
        Candidate("vector", (op,), direction, write, idea)
        for op in ("add", "relu", "relu6", "sigmoid")
        for direction, write, idea in (
            (FORWARD, launches.forward, "16 bytes a thread, activation on the way out"),
            (INPUT, launches.backward, "16 bytes a thread, masked by the output of an activation"),
        )
    ),
    Candidate("vector", ("concat",), FORWARD, launches.concat_forward, "one copy per input, 16 bytes a thread"),
    Candidate("vector", ("concat",), INPUT, launches.concat_backward, "one copy per input, 16 bytes a thread"),
    Candidate("vector", ("dropout",), FORWARD, launches.dropout_forward,
              "16 bytes a thread; every channel computes its own random bits"),
    Candidate("vector", ("dropout",), INPUT, launches.dropout_backward, "the same bits again, no mask"),
)  # fmt: skip
