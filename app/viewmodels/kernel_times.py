"""The kernel times of one step as table columns and stacked bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from app.translation import tr
from app.viewmodels.rows_model import Column
from core.device import KernelTime
from core.percent import percent

DIRECTIONS: Final = ("forward", "backward_input", "backward_weight", "update")


@final
@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A kernel's time and share of the step, and whether it is memory-bound."""

    time: KernelTime
    share: float
    bytes_bound: bool = False

    @property
    def gflops(self) -> float:
        return self.time.flops / self.time.milliseconds / 1e6 if self.time.milliseconds > 0 else 0.0

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.time.flops / self.time.bytes if self.time.bytes > 0 else 0.0

    @property
    def of_peak(self) -> float:
        """Share of the device's peak, 0 to 1."""
        return self.time.floor_ms / self.time.milliseconds if self.time.milliseconds > 0 else 0.0


    @property
    def from_cache(self) -> bool:
        """Whether it is faster than the memory bandwidth allows: its data were in a cache."""
        return self.bytes_bound and self.of_peak > 1


def timed(times: Sequence[KernelTime]) -> list[TimedKernel]:
    whole = sum(t.milliseconds for t in times) or 1.0
    gflops, _ = roof(times)
    return [TimedKernel(t, t.milliseconds / whole, t.flops < 0.999e6 * gflops * t.floor_ms) for t in times]


def roof(times: Iterable[KernelTime]) -> tuple[float, float]:
    """Peak GFLOP/s and GB/s of the device, from the floors of the kernels of a step.

    A floor is the longer of the times for arithmetic and for bytes: the highest rate over all kernels is the peak, or
    less if no kernel is bound by it.
    """
    floors = [(t.flops / t.floor_ms, t.bytes / t.floor_ms) for t in times if t.floor_ms > 0]
    gflops, gigabytes = (max(rates) / 1e6 for rates in zip(*floors, strict=True)) if floors else (1.0, 1.0)
    return gflops, gigabytes


def columns() -> list[Column]:
    return [
        Column(tr("Layer"), lambda k: k.time.layer),
        Column(tr("Direction"), lambda k: tr(k.time.direction.replace("_", " "))),
        Column(tr("Kernel"), lambda k: k.time.kernel),
        Column("ms", lambda k: f"{k.time.milliseconds:.3f}", lambda k: k.time.milliseconds, right=True),
        Column(tr("Share"), lambda k: percent(k.share), lambda k: k.share, right=True),
        Column("GFLOP/s", lambda k: f"{k.gflops:,.1f}" if k.time.flops else "", lambda k: k.gflops, right=True),
        Column(tr("Of peak"), peak_text, lambda k: k.of_peak, right=True, tip=_peak_tip),
    ]


def peak_text(kernel: TimedKernel) -> str:
    """The share of the device's peak; empty if no work is counted (a border that is cleared)."""
    if kernel.time.floor_ms <= 0:
        return ""
    return tr("from cache") if kernel.from_cache else percent(kernel.of_peak, 0)


def _peak_tip(kernel: TimedKernel) -> str | None:
    if not kernel.from_cache:
        return None
    return tr("Faster than the memory bandwidth allows: the data were in the processor's cache.")  # fmt: skip


def stacks(times: Sequence[KernelTime]) -> tuple[list[str], dict[str, list[float]]]:
    """Layers in order, and per direction the milliseconds of each layer."""
    layers = list(dict.fromkeys(t.layer for t in times))
    place = {layer: at for at, layer in enumerate(layers)}
    directions = list(dict.fromkeys([d for d in DIRECTIONS if any(t.direction == d for t in times)]
                                    + [t.direction for t in times]))  # fmt: skip
    bars = {direction: [0.0] * len(layers) for direction in directions}
    for t in times:
        bars[t.direction][place[t.layer]] += t.milliseconds
    return layers, bars
