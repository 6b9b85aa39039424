"""Bytes of a plan on the device, known before they are allocated, and the largest batch that fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from core.device import Memory
from core.errors import OutOfMemory
from core.gpu.control import find_offsets
from core.gpu.frame import Frame
from core.gpu.ops.update.optimizer import NORM_BLOCKS

RESERVE = 256 << 20
"""Bytes of the GPU's memory left to the driver, kernels and graphs."""


def block_sizes(frame: Frame, moments: Sequence[str], arena: int) -> dict[str, int]:
    """Bytes of every block by name; `moments` names the optimizer's arrays, as long as the trained weights.

    packed: weights as kernels read them, pack_indices their places in the flat weights; tables: constants of kernels;
    results: loss and hit of each image; totals: loss, hits and gradient norm of a step; roles: whether a weight is
    trained and decays; sums: partial sums of the norm.
    """
    batch, trained, training = frame.batch, 4 * frame.layout.trained, frame.program.training
    classes = frame.program.output.shape[-1]
    sizes = {
        "weights": 4 * frame.layout.size + 64, "gradient": trained if training else 0,
        "packed": frame.packs.size * frame.element, "pack_indices": 4 * frame.packs.size,
        "tables": 4 * frame.tables.size, "control": find_offsets(batch, frame.program.target_size).end,
        "logits": 4 * batch * classes, "results": 8 * batch, "arena": arena,
    }  # fmt: skip
    if training:
        sizes |= {name: trained for name in moments}
        sizes |= {"roles": frame.layout.trained, "sums": 4 * NORM_BLOCKS, "totals": 64}
    return sizes


def count_memory(frame: Frame, moments: Sequence[str], arena: int) -> Memory:
    """The same, by purpose."""
    sizes = block_sizes(frame, moments, arena)
    optimizer = sum(sizes.get(name, 0) for name in (*moments, "roles"))
    parameters = sizes["weights"] + sizes["packed"]
    named = parameters + sizes["gradient"] + optimizer + arena
    return Memory(parameters, sizes["gradient"], optimizer, arena, sum(sizes.values()) - named, 0)


def fits(needed: int, free: int) -> bool:
    return needed + RESERVE <= free


def require_room(batch: int, needed: int, free: int, bytes_of: Callable[[int], int]) -> None:
    """Raise OutOfMemory with the largest batch that fits, unless this one does; `bytes_of` computes another's needs."""
    if fits(needed, free):
        return
    largest = fitting_batch(batch, free, bytes_of)
    advice = f"A batch of {largest} fits." if largest else "Not even one photo fits: choose a smaller photo size."
    raise OutOfMemory(
        f"A batch of {batch} photos needs {needed / 2**30:.1f} GiB on the GPU, where "
        f"{free / 2**30:.1f} GiB are free. {advice}"
    )


def fitting_batch(most: int, free: int, bytes_of: Callable[[int], int]) -> int:
    """Largest batch up to `most` whose arrays fit into `free` bytes, 0 if not even one photo does."""
    return bisect_left(range(1, most + 1), True, key=lambda size: not fits(bytes_of(size), free))
