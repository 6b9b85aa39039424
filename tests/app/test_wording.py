"""Figures in words."""

import pytest

from app.theme import mixed
from app.wording import duration, number

pytestmark = pytest.mark.gui


@pytest.mark.parametrize(("seconds", "said"), [
    (0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5340, "89 min"), (5400, "1 h 30 min"), (10859, "3 h 1 min"),
    (float("nan"), "–"), (float("inf"), "–"),
])  # fmt: skip
def test_a_time_is_said_as_people_say_it(seconds, said):
    assert duration(seconds) == said


def test_a_figure_that_is_none_is_a_dash():
    assert number(0.125, "{:.1%}") == "12.5%"
    assert number(float("nan"), "{:.1%}") == "–"


def test_a_colour_lets_its_ground_through_by_its_share():
    assert mixed("#ff0000", "#0000ff", 1).name() == "#ff0000"
    assert mixed("#ff0000", "#0000ff", 0).name() == "#0000ff"
    assert mixed("#c80064", "#640000", 0.25).getRgb()[:3] == (125, 0, 25)
