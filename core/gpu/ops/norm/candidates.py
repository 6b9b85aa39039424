"""Candidates for batch norm, and for the 1x1 convolutions that are computed in one pass with it."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.norm import launches, naive, pointwise_launches
from core.gpu.select import BACKWARD, BF16, FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.teaching.candidates import teach

CANDIDATES: Final = (
    teach("naive", "batch_norm", FORWARD, naive.launch_forward(False), "one thread per channel loops over all pixels"),
    teach("shared", "batch_norm", FORWARD, naive.launch_forward(True), "slices of the pixels meet in shared memory"),
    teach("naive", "batch_norm", INPUT, naive.launch_backward_input(False),
          "one thread per channel for the sums, one per element for dx"),
    teach("shared", "batch_norm", INPUT, naive.launch_backward_input(True),
          "sums in slices, one thread per element for dx"),
    teach("naive", "batch_norm", WEIGHT, naive.launch_backward_weight(False), "one thread per channel"),
    teach("shared", "batch_norm", WEIGHT, naive.launch_backward_weight(True), "sums in slices"),
    Candidate("sums", ("batch_norm",), FORWARD, launches.forward,
              "partial sums of slices, added in order; then one pass, activation on the way out"),
    Candidate("sums", ("batch_norm",), BACKWARD, launches.backward,
              "dx = a dy + b x + c, its factors from partial sums of dy and dy x, added in order"),
    Candidate("expand", ("conv2d",), FORWARD, pointwise_launches.expand,
              "1x1 from few channels to many, with the sums of the batch norm behind", "auto", 0.6,
              pointwise_launches.refuse_expand, arithmetics=BF16, exclusive=True),
    Candidate("project", ("conv2d",), FORWARD, pointwise_launches.project,
              "1x1 from many channels to few, batch norm applied on the way in, sums of the next one made", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16, exclusive=True),
    Candidate("expand", ("conv2d",), BACKWARD, pointwise_launches.expand_backward,
              "both gradients from that of the batch norm behind", "auto", 0.6, pointwise_launches.refuse_expand,
              arithmetics=BF16, exclusive=True),
    Candidate("project", ("conv2d",), BACKWARD, pointwise_launches.project_backward,
              "both gradients, that of the input with the sums of its batch norm", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16, exclusive=True),
)  # fmt: skip
