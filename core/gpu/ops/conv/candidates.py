"""Candidates for convolutions.

Efficiencies are an order of preference where nothing was measured: a kernel for a special case over the implicit
product, one launch over two, what a batch norm's sums are made in over what another launch reads again.
"""

from __future__ import annotations

from typing import Final

from core.gpu.ops.conv import backward_input, backward_weight, forward, image_launches
from core.gpu.ops.conv.configurations import halo_tiles, product_tiles, weight_tiles
from core.gpu.select import FORWARD, INPUT, WEIGHT, Candidate

ONE, FIRE = ("conv2d",), ("conv2d", "conv2d")

PRODUCTS: Final = (
    Candidate("implicit_gemm", ONE, FORWARD, forward.implicit_gemm,
              "pixels times filters by mma.sync, windows read through a cp.async ring", efficiency=0.3,
              configurations=product_tiles),
    Candidate("halo", ONE, FORWARD, forward.halo,
              "3x3: a pixel and its neighbours are loaded once, the nine taps are offsets", efficiency=0.34,
              refuses=forward.refuse_halo, configurations=halo_tiles),
    Candidate("batch_norm_sums", ONE, FORWARD, forward.batch_norm_sums,
              "the implicit product, with the sums of the batch norm behind", efficiency=0.46,
              refuses=forward.refuse_sums, configurations=product_tiles),
    Candidate("image", ONE, FORWARD, image_launches.forward,
              "of the network's input: filters stay in shared memory, rows of ldmatrix overlap", efficiency=0.48,
              refuses=image_launches.refuse),
    Candidate("fire", FIRE, FORWARD, forward.fire, "1x1 and 3x3 halves of a small fire in one launch", "auto", 0.5,
              forward.refuse_fire, configurations=product_tiles),
    Candidate("implicit_gemm", ONE, INPUT, backward_input.implicit_gemm, "the implicit product with rotated filters",
              efficiency=0.3, configurations=product_tiles),
    Candidate("fire", FIRE, INPUT, backward_input.fire,
              "both halves of a fire: the 1x1 filters are more depth of the sum", "auto", 0.5,
              backward_input.refuse_fire, configurations=product_tiles),
    Candidate("fire_halo", FIRE, INPUT, backward_input.fire_halo,
              "both halves of a fire, pixels in shared memory: the 1x1 filters are a tenth tap", "auto", 0.52,
              backward_input.refuse_fire_halo, configurations=halo_tiles),
    Candidate("split_pixels", ONE, WEIGHT, backward_weight.split_pixels,
              "sum over pixels split between blocks, parts added in order; the bias is one more product with ones",
              efficiency=0.3, configurations=weight_tiles),
)  # fmt: skip

CANDIDATES: Final = PRODUCTS
