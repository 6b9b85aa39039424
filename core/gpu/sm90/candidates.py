"""Candidates that need compute capability 9.0: TMA and `wgmma`, in bf16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from core.gpu.ops.conv import products
from core.gpu.ops.matmul.tensor_core import refuse as refuse_product
from core.gpu.select import BACKWARD, BF16, FORWARD, INPUT, WEIGHT, Candidate, Case
from core.gpu.sm90 import configurations as of
from core.gpu.sm90 import halo, image, matmul_tma, pointwise

ONE, FIRE, POOLED = ("conv2d",), ("conv2d", "conv2d"), ("conv2d", "max_pool")


def _row(
    name: str, pattern: tuple[str, ...], direction: str, efficiency: float, refuses: Callable[[Case], str],
    write: Callable[[Case], None], idea: str, configurations: Callable[[Case], Sequence[Any]] = lambda case: (None,),
) -> Candidate:  # fmt: skip
    return Candidate(
        name, pattern, direction, write, idea, "auto", efficiency, refuses, (9, 0), BF16, configurations
    )


CANDIDATES: Final = (
    _row("tma", ("matmul",), FORWARD, 0.6, refuse_product, matmul_tma.write,
         "one thread copies by TMA, warpgroups only multiply"),
    _row("resident_wgmma", ONE, FORWARD, 0.4, products.refuse_three, halo.write_resident,
         "3x3 by wgmma, filters stay in shared memory", of.resident_tiles),
    _row("pointwise_tma", ONE, FORWARD, 0.4, pointwise.refuse_forward, pointwise.write_forward,
         "1x1 by wgmma over TMA tiles", of.pointwise_forward_tiles),
    _row("image_pool", POOLED, FORWARD, 0.6, image.refuse_forward, image.write_forward,
         "convolution of the image and the max pool after it, by wgmma"),
    _row("fire_tma", FIRE, INPUT, 0.6, halo.refuse_fire, halo.write_fire,
         "both halves of a fire by wgmma over TMA tiles", of.fire_shapes),
    _row("rows_tma", ONE, WEIGHT, 0.4, halo.refuse_rows, halo.write_rows, "3x3 by wgmma over TMA tiles of rows",
         of.row_shapes),
    _row("pointwise_tma", ONE, BACKWARD, 0.6, pointwise.refuse_gradients, pointwise.write_gradients,
         "both gradients of a 1x1 convolution in one pass over TMA tiles", of.pointwise_gradients_tiles),
    _row("image_pool", POOLED, BACKWARD, 0.6, image.refuse_backward, image.write_backward,
         "weight gradients of the image's convolution from what is behind its max pool, by wgmma"),
)  # fmt: skip
