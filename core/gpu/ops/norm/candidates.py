"""Candidates for batch norm, and for the 1x1 convolutions that are computed in one pass with it."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.norm import launches, pointwise_launches
from core.gpu.select import BACKWARD, BF16, FORWARD, Candidate

CANDIDATES: Final = (
    Candidate("sums", ("batch_norm",), FORWARD, launches.forward,
              "partial sums of slices, added in order; then one pass, activation on the way out"),
    Candidate("sums", ("batch_norm",), BACKWARD, launches.backward,
              "dx = a dy + b x + c, its factors from partial sums of dy and dy x, added in order"),
    Candidate("expand", ("conv2d",), FORWARD, pointwise_launches.expand,
              "1x1 from few channels to many, with the sums of the batch norm behind", "auto", 0.6,
              pointwise_launches.refuse_expand, arithmetics=BF16),
    Candidate("project", ("conv2d",), FORWARD, pointwise_launches.project,
              "1x1 from many channels to few, batch norm applied on the way in, sums of the next one made", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16),
    Candidate("expand", ("conv2d",), BACKWARD, pointwise_launches.expand_backward,
              "both gradients from that of the batch norm behind", "auto", 0.6, pointwise_launches.refuse_expand,
              arithmetics=BF16),
    Candidate("project", ("conv2d",), BACKWARD, pointwise_launches.project_backward,
              "both gradients, that of the input with the sums of its batch norm", "auto", 0.6,
              pointwise_launches.refuse_project, arithmetics=BF16),
)  # fmt: skip
