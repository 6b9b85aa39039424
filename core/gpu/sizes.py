"""Bytes of everything a plan keeps on the device, known before it is allocated."""

from __future__ import annotations

from collections.abc import Sequence

from core.device import Memory
from core.gpu.control import places
from core.gpu.frame import Frame
from core.gpu.ops.update.optimizer import NORM_BLOCKS


def block_sizes(frame: Frame, moments: Sequence[str], arena: int) -> dict[str, int]:
    """Bytes of every block by name; `moments` are the optimizer's arrays as long as the trained weights."""
    batch, trained, training = frame.batch, 4 * frame.layout.trained, frame.program.training
    classes = frame.program.output.shape[-1]
    sizes = {
        "weights": 4 * frame.layout.size + 64, "gradient": trained if training else 0,
        "packed": frame.packed_count * frame.element, "pack places": 4 * frame.packed_count,
        "tables": frame.all_tables().nbytes, "control": places(batch, frame.program.taught)[-1],
        "logits": 4 * batch * classes, "results": 8 * batch, "arena": arena,
    }  # fmt: skip
    if training:
        sizes |= {name: trained for name in moments}
        sizes |= {"roles": frame.layout.trained, "sums": 4 * NORM_BLOCKS, "answer": 64}
    return sizes


def count_memory(frame: Frame, moments: Sequence[str], arena: int) -> Memory:
    """The same, by what it is for."""
    sizes = block_sizes(frame, moments, arena)
    optimizer = sum(sizes.get(name, 0) for name in (*moments, "roles"))
    parameters = sizes["weights"] + sizes["packed"]
    named = parameters + sizes["gradient"] + optimizer + arena
    return Memory(parameters, sizes["gradient"], optimizer, arena, sum(sizes.values()) - named, 0)
