"""Forward and backward time of each module of a network, from the times of its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from core.device import PhotoBatch, Plan

ModuleTimes: TypeAlias = dict[str, tuple[float, float]]
"""Module name to milliseconds of its forward and of its backward kernels."""
FAST: Final = 20.0
"""Milliseconds: below, kernels of a GPU are timed inside the captured step, as their launches take longer than they."""


def time_modules(plan: Plan, device: str, given: PhotoBatch, milliseconds: float) -> ModuleTimes:
    """Time the kernels of a training plan whose iteration takes `milliseconds`; without the optimizer's kernels."""
    if device == "cuda" and milliseconds < FAST:
        from core.gpu.plan import CudaPlan

        assert isinstance(plan, CudaPlan)
        found = [(launch.layer, launch.direction, us / 1e3) for launch, us in plan.time_inside(given)]
    else:
        found = [(one.layer, one.direction, one.milliseconds) for one in plan.time_kernels(given)]
    return add_up((layer, direction, took) for layer, direction, took in found if direction)


def add_up(kernels: Iterable[tuple[str, str, float]]) -> ModuleTimes:
    """(layer, direction, milliseconds) of kernels by module: `features.3` holds the three layers of a fire module."""
    found: ModuleTimes = {}
    for layer, direction, took in kernels:
        module = ".".join(layer.split(".")[:2])
        forward, backward = found.get(module, (0.0, 0.0))
        found[module] = (forward + took, backward) if direction == "forward" else (forward, backward + took)
    return found


def totals(modules: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
    """Milliseconds of the forward and of the backward pass."""
    return sum(forward for forward, _ in modules.values()), sum(backward for _, backward in modules.values())
