"""Whether a plan fits into the memory that is free, and the largest batch that does."""

from __future__ import annotations

from collections.abc import Callable

from core.errors import OutOfMemory

RESERVE = 256 << 20
"""Bytes of the GPU's memory left to the driver, kernels and graphs."""


def fits(needed: int, free: int) -> bool:
    return needed + RESERVE <= free


def require_room(batch: int, needed: int, free: int, bytes_of: Callable[[int], int]) -> None:
    """Raises OutOfMemory with the batch that fits; `bytes_of` gives what a plan of another batch needs."""
    if fits(needed, free):
        return
    largest = fitting_batch(batch, free, bytes_of)
    advice = f"A batch of {largest} fits." if largest else "Not even one photo fits: choose a smaller photo size."
    raise OutOfMemory(
        f"A batch of {batch} photos needs {needed / 2**30:.1f} GiB on the GPU, where "
        f"{free / 2**30:.1f} GiB are free. {advice}"
    )


def fitting_batch(most: int, free: int, bytes_of: Callable[[int], int]) -> int:
    """Largest batch up to `most` whose arrays fit into so many bytes, 0 where not even one photo does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(bytes_of(middle), free):
            low = middle
        else:
            high = middle - 1
    return low
