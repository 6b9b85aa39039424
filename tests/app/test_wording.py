"""Figures in words."""

import re

import pytest
from PySide6.QtCore import Qt

from app.panels.dataset.classes import balance_text
from app.translation import duration, number, sentence
from app.widgets.parts import label
from core.diagnosis import page
from core.percent import percent, percents, stated
from tests.helpers.texts import ROOT, written_texts

pytestmark = pytest.mark.gui


@pytest.mark.parametrize(("seconds", "said"), [
    (0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5340, "89 min"), (5400, "1 h 30 min"), (10859, "3 h 1 min"),
    (float("nan"), "–"), (float("inf"), "–"),
])  # fmt: skip
def test_a_time_is_said_as_people_say_it(seconds, said):
    assert duration(seconds) == said


def test_classes_with_few_photos_are_named_or_counted(qapp):
    assert label("a<b>c").textFormat() is Qt.TextFormat.PlainText, "a name is no HTML"
    said = [balance_text([(name, 3) for name in names]) for names in ("abcde", "ab")]
    assert [" a, b, c (+2). " in said[0], " a, b. " in said[1]] == [True, True]


def test_shares_are_written_one_way_and_never_part_from_their_sign_and_a_figure_that_is_none_is_a_dash():
    assert [number(value, "{:.1f}") for value in (0.125, float("nan"))] == ["0.1", "–"]
    assert [percent(0.5694), percent(1, 0), percent(float("nan"))] == ["56.9\u00a0%", "100\u00a0%", "–"]
    assert percents(0.977, 0.987) == "97.7–98.7\u00a0%"
    assert sentence("Of 12 photos 56.9 % are right.") == "Of 12 photos 56.9\u00a0% are right."
    assert "98.0\u00a0% of" in page.render_page("x", [page.paragraphs(["98.0 % of all"])])
    assert 'width="100%"' in page.render_page("x", [page.note("y")])
    files = (*ROOT.glob("app/**/*.py"), *ROOT.glob("core/diagnosis/*.py"))
    assert not [file for file in files if re.search(r":\.\d%", file.read_text("utf-8"))], "core.percent does that"
    said = [stated(p).replace("\u00a0", " ") for p in (1.0, 0.9996, 0.9994, 0.5, 0.0006, 0.0004, 0.0)]
    assert said == ["> 99.9 %", "> 99.9 %", "99.9 %", "50.0 %", "0.1 %", "< 0.1 %", "< 0.1 %"], "none is certain"


def test_no_text_of_the_window_has_a_space_that_breaks_before_its_percent_sign():
    """Texts of core may: where they are shown, `sentence` puts the right one."""
    assert not [text for text in written_texts() if re.search(r"[\d}] ?%", text)]
