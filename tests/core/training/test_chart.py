"""Charts: what stands at their axes."""

from core.training.chart import Series, draw_lines

HALF = [Series("a", ((0.0, 0.0), (1.0, 0.5)))]


def test_shares_are_labelled_in_per_cent_and_other_figures_as_they_are():
    assert ">50 %<" in draw_lines("shares", HALF, "x", percent=True)
    assert ">0.5<" not in draw_lines("shares", HALF, "x", percent=True)
    assert ">0.5<" in draw_lines("figures", HALF, "x")
    assert "%" not in draw_lines("figures", HALF, "x").replace("100%", "")


def test_without_a_point_there_is_no_chart():
    assert draw_lines("nothing", [Series("a", ())], "x") == ""
    assert draw_lines("nothing", [Series("a", ((0.0, float("nan")),))], "x") == ""
