"""Candidates for softmax, and for the loss, which a plan computes with the logits (`head_launch`)."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.loss import launches, naive
from core.gpu.select import FORWARD, INPUT, Candidate
from core.gpu.teaching.candidates import teach
from core.ops.op_table import LOSSES

LOSS, MULTI = LOSSES

CANDIDATES: Final = (
    teach("naive", "softmax", FORWARD, naive.launch_naive_forward, "one thread per row"),
    teach("shared", "softmax", FORWARD, naive.launch_shared_forward, "one warp per row"),
    teach("naive", "softmax", INPUT, naive.launch_naive_backward, "one thread per row"),
    teach("shared", "softmax", INPUT, naive.launch_shared_backward, "one warp per row"),
    teach("naive", LOSS, FORWARD, naive.launch_naive_loss_forward, "one thread per image"),
    teach("shared", LOSS, FORWARD, naive.launch_shared_loss_forward, "one warp per image"),
    teach("naive", LOSS, INPUT, naive.launch_naive_loss_backward, "one thread per image"),
    Candidate("head", (LOSS,), FORWARD, launches.loss_forward,
              "one block per image: logits, loss and correctness in shared memory"),
    Candidate("head", (LOSS,), INPUT, launches.loss_backward, "the loss and its gradient (dy is 1) in one launch"),
    Candidate("head", (MULTI,), FORWARD, launches.loss_forward, "one block per image: a thread has every 128th label"),
    Candidate("head", (MULTI,), INPUT, launches.loss_backward, "the loss and its gradient (dy is 1) in one launch"),
    Candidate("warp", ("softmax",), FORWARD, launches.softmax_forward, "one warp per pixel, 16 bytes per thread",
              refuses=launches.refuse_flat),
    Candidate("warp", ("softmax",), INPUT, launches.softmax_backward, "one warp per pixel, one sum",
              refuses=launches.refuse_flat),
)  # fmt: skip
