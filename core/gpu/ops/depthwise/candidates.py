"""Candidates for depthwise convolutions."""

from __future__ import annotations

from typing import Final

from core.gpu.ops.conv import naive
from core.gpu.ops.depthwise import launches, shared
from core.gpu.select import BACKWARD, FORWARD, INPUT, WEIGHT, Candidate
from core.gpu.teaching.candidates import by_names, in_order, teach
from core.gpu.teaching.column_sums import BIAS

ONE = ("depthwise_conv2d",)

CANDIDATES: Final = (
    teach("naive", *ONE, FORWARD, by_names(naive.naive_forward), "one thread per output"),
    teach("naive", *ONE, INPUT, by_names(naive.naive_backward_input),
          "one thread per input gathers from every window that contains it"),
    teach("naive", *ONE, WEIGHT, in_order(by_names(naive.naive_backward_weight), BIAS),
          "one thread per weight loops over all pixels"),
    teach("shared", *ONE, WEIGHT, shared.launch_shared_backward_weight,
          "partial sums of the pixels are added in shared memory"),
    Candidate("direct", ONE, FORWARD, launches.write_direct,
              "any window: 16 bytes of channels of one output per thread",
              efficiency=0.3, refuses=launches.refuse_direct),
    Candidate("strips", ONE, FORWARD, launches.forward_strips,
              "3x3: a thread moves down two columns, sums of three rows in registers", refuses=launches.refuse_strips),
    Candidate("strips_norms", ONE, FORWARD, launches.forward_strips,
              "the same, previous batch norm applied, sums of the next one computed",
              refuses=launches.refuse_norms, exclusive=True),
    Candidate("direct", ONE, INPUT, launches.write_direct,
              "one thread per pixel gathers from every window that contains it",
              refuses=launches.refuse_direct),
    Candidate("direct", ONE, WEIGHT, launches.weights_direct,
              "sums of a row of taps in registers, parts added in order", refuses=launches.refuse_direct),
    Candidate("strips_norms", ONE, BACKWARD, launches.backward_norms,
              "both gradients, with those of the neighbouring batch norms: a thread moves down two columns, nine sums "
              "of the weight gradient in registers", efficiency=0.6, refuses=launches.refuse_norms, exclusive=True),
)  # fmt: skip
