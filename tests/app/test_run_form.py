"""The form made from the rows of RunConfig."""

import pytest

from app.widgets.run_form import GIVEN, RunForm
from core.config import RunConfig, from_dict, settings, to_dict
from core.errors import ConfigError, Problem

pytestmark = pytest.mark.gui


@pytest.fixture
def form(qtbot, monkeypatch):
    monkeypatch.setattr("app.widgets.run_form.count_gpu_files", lambda: 4)
    made = RunForm({"quick": {"epochs": 3, "learning_rate": 0.5, "model": "cnn"}})
    qtbot.addWidget(made)
    return made


def test_every_setting_has_a_field_with_a_name_for_readers(form):
    assert set(form.fields) == set(settings()) - set(GIVEN)
    assert all(field.editor.accessibleName() and field.caption.buddy() for field in form.fields.values())


def test_the_number_of_gpus_is_asked_only_where_there_are_several(form, qtbot, monkeypatch):
    assert form.fields["gpus"].editor.maximum() == 4
    assert form.is_visible("gpus")
    monkeypatch.setattr("app.widgets.run_form.count_gpu_files", lambda: 1)
    alone = RunForm()
    qtbot.addWidget(alone)
    assert {"gpus", "sync_batch_norm"}.isdisjoint(alone.fields)
    assert from_dict(alone.values()).gpus == 1


def test_values_go_in_and_come_out_and_paths_with_blanks_stay_whole(form):
    assert from_dict(form.values()) == RunConfig()
    config = RunConfig(epochs=7, learning_rate=0.003, model="mlp", where=("crop=tomato",), verify=True, preset="quick")
    form.take_over(to_dict(config))
    assert from_dict(form.values()) == config
    config = RunConfig(teacher=(r"C:\My runs\first", "/runs/second", "./third one/best.safetensors"), teacher_share=0.5)
    form.take_over(to_dict(config))
    assert from_dict(form.values()) == config
    form.fields["teacher"].editor.setText('  "/a b"  /c ')
    assert form.values()["teacher"] == ("/a b", "/c")


def test_expert_shows_everything_and_the_first_wrong_field_is_found_and_has_room_for_its_problem(form, qtbot):
    for expert in (False, True):
        form.set_expert(expert)
        assert [form.is_visible(name) for name in ("epochs", "beta1")] == [True, expert]
    form.resize(300, 600)
    form.show()
    assert form.wrong() is None
    long = Problem("test", "validation and test shares leave too few photos for training.")
    form.show_problems([long, Problem("beta1", "2 is too large; the maximum is 1.")])
    field = form.fields["test"]
    assert form.wrong() is field.place
    qtbot.waitUntil(lambda: field.problem.height() >= field.problem.heightForWidth(field.problem.width()) > 20)
    form.show_problems([])
    assert form.wrong() is None


def test_a_preset_fills_the_fields_it_names(form, qtbot):
    with qtbot.waitSignal(form.changed):
        form.fields["preset"].editor.setCurrentIndex(1)
    assert (form.values()["epochs"], form.values()["learning_rate"]) == (3, 0.5)
    assert form.values()["model"] == "cnn"


def test_problems_stand_at_their_field(form):
    form.fields["learning_rate"].editor.setText("fast")
    form.fields["dropout"].editor.setText("2")
    with pytest.raises(ConfigError) as told:
        from_dict(form.values())
    form.set_expert(True)
    rest = form.show_problems([*told.value.problems, Problem("data", "is missing.")])
    assert form.fields["learning_rate"].problem.text()
    assert form.fields["dropout"].editor.property("wrong")
    assert not form.fields["momentum"].problem.text()
    assert [p.field for p in rest] == ["data"]
    form.show_problems([])
    assert not form.fields["learning_rate"].problem.text()


def test_where_zero_has_a_meaning_the_meaning_is_shown_and_a_comma_is_a_point(form):
    minutes, size = form.fields["minutes"], form.fields["use_size"]
    minutes.set_value(0.0)
    size.set_value(0)
    assert (minutes.editor.text(), minutes.editor.placeholderText()) == ("", "no limit")
    assert (size.editor.text(), form.fields["image_size"].editor.text()) == ("as in training", "automatic")
    assert (minutes.value(), size.value()) == (0.0, 0)
    minutes.set_value(2.5)
    assert (minutes.editor.text(), minutes.value()) == ("2.5", 2.5)
    for typed, meant in (("soon", "soon"), ("1,5", 1.5)):
        minutes.editor.setText(typed)
        assert minutes.value() == meant


def test_all_settings_fit_into_the_column(qapp, qtbot, language):
    form = RunForm({})
    qtbot.addWidget(form)
    form.set_expert(True)
    form.show()
    assert form.minimumSizeHint().width() <= 280, "of 312 pixels, margins and the scroll bar take 32"
