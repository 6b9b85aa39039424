"""What a terminal and a page say of probabilities that would be rounded to certainty."""

from core.diagnose import show_text
from core.diagnosis.batch_report import _guess
from core.diagnosis.prediction import Diagnosis, Guess

TOP = (Guess("tomato/late_blight", 0.99996), Guess("tomato/leaf_mold", 0.00004))


def test_a_terminal_states_nothing_as_certain(capsys):
    assert show_text([Diagnosis("a.jpg", "tomato/late_blight", TOP)]) == 1
    assert capsys.readouterr().out == "a.jpg: tomato/late_blight > 99.9 %, tomato/leaf_mold < 0.1 %\n"


def test_a_page_states_nothing_as_certain():
    assert "<b>&gt;\u00a099.9\u00a0%</b>" in _guess(TOP[0])
    assert "<b>&lt;\u00a00.1\u00a0%</b>" in _guess(TOP[1])
