"""The roofline of a whole step above its table: every kernel that computes is a point under the roof."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from app.panels.train.kernels import KernelTimesPane, peak_text, roof, timed
from core.device import KernelTime

PEAK, BYTES = 2e9, 1e8
"""FLOP and bytes a millisecond of the pretended device: 2000 GFLOP/s and 100 GB/s."""


def kernel(layer, direction, milliseconds, flops, size):
    return KernelTime(layer, direction, "fast", milliseconds, flops, size, max(flops / PEAK, size / BYTES))


STEP = (
    kernel("conv", "forward", 2.0, 2_000_000_000, 1_000_000), kernel("relu", "forward", 0.5, 10_000_000, 40_000_000),
    kernel("conv", "backward_weight", 4.0, 4_000_000_000, 1_000_000), kernel("copy", "forward", 0.1, 0, 1_000_000),
)


def test_the_roof_is_the_peak_that_the_floors_were_counted_with():
    assert (roof(STEP), roof(())) == (pytest.approx((2000, 100)), (1.0, 1.0))


def test_every_kernel_that_computes_is_a_point_and_the_larger_the_longer_it_takes(qapp):
    pane = KernelTimesPane()
    pane.show_times(STEP)
    points = [p for item in pane.roofline.plot.plotItem.items if hasattr(item, "points") for p in item.points()]
    assert {p.data().tip.split(",")[0] for p in points} == {"conv", "relu"}
    by_time = sorted(points, key=lambda p: float(p.data().tip.splitlines()[1].split(" ms")[0]))
    assert [p.size() for p in by_time] == sorted(p.size() for p in points)
    assert "2,000 GFLOP/s, 100 GB/s" in pane.roofline.caption.text()
    assert pane._bars.highest == pytest.approx(4 / 6.6), "the bar of the longest fills its cell"


def test_what_lay_in_the_cache_is_told_so_and_not_as_more_than_all(qapp):
    pool = replace(STEP[1], layer="pool", milliseconds=0.3)  # its bytes would take 0.4 ms from memory
    border = KernelTime("photo", "forward", "border", 0.1, 0, 0, 0.0)
    pane = KernelTimesPane()
    pane.show_times((*STEP, pool, border))
    shown = {pane.model.rows[at].time.layer: pane.model.index(at, 6) for at in range(len(pane.model.rows))}
    assert shown["pool"].data() == "from cache"
    assert "processor's cache" in shown["pool"].data(Qt.ItemDataRole.ToolTipRole)
    assert shown["conv"].data() == "50\u00a0%"
    assert shown["photo"].data() == "", "no work is counted for it"
    assert "above the bandwidth line" in pane.roofline.caption.text()
    too_fast = replace(STEP[0], milliseconds=0.8)
    assert peak_text(timed((*STEP, too_fast))[-1]) == "125\u00a0%", "arithmetic has no cache: the peak is too low"


def test_copies_alone_have_no_roof(qapp):
    pane = KernelTimesPane()
    pane.show_times(STEP[-1:])
    assert pane.roofline.caption.text() == ""
