"""Candidates for softmax, and for the loss, which a plan computes with the logits (`core.gpu.ops.loss.head`)."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.loss import head, naive, softmax
from core.gpu.select import FORWARD, INPUT, Candidate
from core.gpu.teaching.candidates import by_names, teach
from core.ops.op_table import LOSSES

LOSS, MULTI = LOSSES

CANDIDATES: Final = (
    teach("naive", "softmax", FORWARD, by_names(naive.naive_forward, naive.per_row), "one thread per row"),
    teach("naive", "softmax", INPUT, by_names(naive.naive_backward, naive.per_row), "one thread per row"),
    teach("naive", LOSS, FORWARD, by_names(naive.naive_loss_forward, naive.per_row), "one thread per image"),
    teach("naive", LOSS, INPUT, by_names(naive.naive_loss_backward, naive.per_row), "one thread per image"),
    Candidate("head", (LOSS,), FORWARD, head.loss_forward,
              "one block per image: logits, loss and correctness in shared memory"),
    Candidate("head", (LOSS,), INPUT, head.loss_backward, "the loss and its gradient (dy is 1) in one launch"),
    Candidate("head", (MULTI,), FORWARD, head.loss_forward, "one block per image: a thread has every 128th label"),
    Candidate("head", (MULTI,), INPUT, head.loss_backward, "the loss and its gradient (dy is 1) in one launch"),
    Candidate("warp", ("softmax",), FORWARD, softmax.write_softmax, "one warp per pixel, 16 bytes per thread",
              refuses=softmax.refuse_flat),
    Candidate("warp", ("softmax",), INPUT, softmax.write_softmax, "one warp per pixel, one sum",
              refuses=softmax.refuse_flat),
)  # fmt: skip
