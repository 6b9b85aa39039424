"""Charts: what stands at their axes."""

import re

from core.training.svg_chart import ChartSeries, draw_lines

HALF = [ChartSeries("a", ((0.0, 0.0), (1.0, 0.5)))]


def test_shares_are_labelled_in_per_cent_and_other_figures_as_they_are():
    assert ">50 %<" in draw_lines("shares", HALF, "x", percent=True)
    assert ">0.5<" not in draw_lines("shares", HALF, "x", percent=True)
    assert ">0.5<" in draw_lines("figures", HALF, "x")
    assert "%" not in draw_lines("figures", HALF, "x").replace("100%", "")


def test_the_last_number_of_an_axis_is_not_cut_off():
    chart = draw_lines("shares", [ChartSeries("a", ((0.0, 0.0), (1.0, 1.0)))], "x", percent=True)
    width = float(re.search(r'viewBox="0 0 (\d+)', chart)[1])
    middles = [float(x) for x in re.findall(r'x="([\d.]+)"[^>]*text-anchor="middle">100 %<', chart)]
    assert middles
    assert all(x + 5 * 7 / 2 <= width for x in middles), "five letters of seven pixels"


def test_without_a_point_there_is_no_chart():
    assert draw_lines("nothing", [ChartSeries("a", ())], "x") == ""
    assert draw_lines("nothing", [ChartSeries("a", ((0.0, float("nan")),))], "x") == ""
