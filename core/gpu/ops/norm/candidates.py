"""Candidates for batch norm, and for the 1x1 convolutions that are computed in one pass with it."""

from __future__ import annotations

from functools import partial
from typing import Final

from core.gpu.ops.norm import launches, naive, pointwise_launches
from core.gpu.select import BACKWARD, BF16, FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.teaching.candidates import teach

CANDIDATES: Final = (
    *(teach(name, "batch_norm", direction, partial(launch, name == "shared"), idea)
      for direction, launch, name, idea in (
        (FORWARD, naive.launch_forward, "naive", "one thread per channel loops over all pixels"),
        (FORWARD, naive.launch_forward, "shared", "partial sums of the pixels are added in shared memory"),
        (INPUT, naive.launch_backward_input, "naive", "one thread per channel for the sums, one per element for dx"),
        (INPUT, naive.launch_backward_input, "shared", "partial sums, one thread per element for dx"),
        (WEIGHT, naive.launch_backward_weight, "naive", "one thread per channel"),
        (WEIGHT, naive.launch_backward_weight, "shared", "partial sums"),
    )),
    Candidate("sums", ("batch_norm",), FORWARD, launches.forward,
              "partial sums, added in order; then one pass, activation in the epilogue"),
    Candidate("sums", ("batch_norm",), BACKWARD, launches.backward,
              "dx = a dy + b x + c, its factors from partial sums of dy and dy x, added in order"),
    Candidate("expand", ("conv2d",), FORWARD, pointwise_launches.expand,
              "1x1 from few to many channels, with the sums of the next batch norm", "auto", 0.6,
              pointwise_launches.refuse_expand, arithmetics=BF16, exclusive=True),
    Candidate("project", ("conv2d",), FORWARD, pointwise_launches.project,
              "1x1 from many to few channels, previous batch norm applied, sums of the next one computed", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16, exclusive=True),
    Candidate("expand", ("conv2d",), BACKWARD, pointwise_launches.expand_backward,
              "both gradients, from that of the next batch norm", "auto", 0.6, pointwise_launches.refuse_expand,
              arithmetics=BF16, exclusive=True),
    Candidate("project", ("conv2d",), BACKWARD, pointwise_launches.project_backward,
              "both gradients, with the sums of the input's batch norm", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16, exclusive=True),
)  # fmt: skip
