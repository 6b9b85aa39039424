"""What a terminal and a page say of probabilities that would be rounded to certainty."""

from core.diagnosis.batch_report import Entry, render_batch
from core.diagnosis.diagnosis_output import show_text
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.prediction import ClassProbability, Diagnosis

TOP = (ClassProbability("tomato/late_blight", 0.99996), ClassProbability("tomato/leaf_mold", 0.00004))


def test_a_terminal_states_nothing_as_certain(capsys):
    assert show_text([Diagnosis("a.jpg", "tomato/late_blight", TOP)], ModelIdentity()) == 1
    assert capsys.readouterr().out == "a.jpg: tomato/late_blight > 99.9 %, tomato/leaf_mold < 0.1 %\n"


def test_a_page_states_nothing_as_certain():
    text = render_batch([Entry("a.jpg", "late blight", "sick", guesses=(("late blight", 0.99996),))])
    assert "<b>&gt;\u00a099.9\u00a0%</b>" in text
    assert '<td class="n" align="right" width="19%">&gt;\u00a099.9' in text
