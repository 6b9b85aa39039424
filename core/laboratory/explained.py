"""Which kernel each step of a network's plan runs on a GPU, and why; the GPU need not be there."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from core.models.architectures import build
from core.ops.builder import with_loss
from core.program import fold_batch_norm, lower

if TYPE_CHECKING:
    from core.gpu.explain import Explained

CLASSES = 38
"""Of the networks that are explained: the classes of PlantVillage."""


def explain_plan(arguments: argparse.Namespace) -> list[Explained]:
    """Every choice of the plan that the arguments describe. Raises DeviceError or KernelUnavailable."""
    from core.gpu.explain import explain, frame_for  # numba.cuda costs a second: only where it is used
    from core.gpu.launch import RELU

    base = build(arguments.model, CLASSES, arguments.image_size)
    graph = with_loss(base, 0.0, ()) if arguments.training else fold_batch_norm(base)
    program = lower(graph, arguments.training, fused=RELU)
    return explain(
        frame_for(program, arguments.batch, arguments.precision, arguments.capability, arguments.algorithm)
    )
