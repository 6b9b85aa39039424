"""A run says on how many of its evaluation photos its first weights or its teachers were trained."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.model_card import render_card
from core.diagnosis.model_file import read_model, write_model
from core.diagnosis.model_identity import BEST
from core.percent import keep_percents
from core.training.events import Warned
from core.training.run_evaluation import UNSEEN
from core.training.run_folder import SPLIT
from tests.helpers.runs import only, train

pytestmark = pytest.mark.usefixtures("reference_plans")


def told(config):
    found = only(train(config), Warned)
    assert all((event.kind == "leakage") == event.message.startswith("Data leakage: ") for event in found)
    return [event.message for event in found]


def doubts(config):
    return [text for text in told(config) if "trained on" in text or "training photos" in text]


def split_of(config):
    with (Path(config.out) / SPLIT).open(encoding="utf-8", newline="") as file:
        return {row["sha256"]: row["split"] for row in csv.DictReader(file)}


def test_the_overlap_of_a_start_is_counted_in_notes_report_and_card(tiny, tmp_path):
    first = tiny("first", epochs=1)
    train(first)
    field = tmp_path / "field"
    shutil.copytree(Path(first.data) / "green", field / "green")
    second = tiny("second", epochs=1, seed=5, start=first.out, field=str(field))
    found, before, after = doubts(second), split_of(first), split_of(second)
    for text, split, name in zip(found, ("validation", "test"), ("val", "test"), strict=False):
        evaluated = [photo for photo in after if after[photo] == name]
        n, photos = sum(before[photo] == "train" for photo in evaluated), len(evaluated)
        assert 0 < n < photos
        assert text == (
            f"Data leakage: first was trained on {n} of the {photos} {split} photos. The accuracy on them is too high."
        )
    trained = sum(split == "train" for photo, split in split_of(first).items()) // 2
    assert found[2] == (
        f"Data leakage: first was trained on {trained} of the 12 field photos. The accuracy on them is too high."
    )
    assert len(found) == 3
    model = read_model(Path(second.out))
    (unseen,) = (part for part in model.sections["test"]["parts"] if part["name"] == UNSEEN)
    assert unseen["photos"] == photos - n
    card = render_card(model, "x")
    page = (Path(second.out) / "report.html").read_text("utf-8")
    assert all(text in card and text in page for text in found)
    assert keep_percents(f"Without known data leakage: {UNSEEN} {100 * unseen['right']:.1f} % (") in page


def test_a_file_knows_its_training_photos_the_same_split_leaves_no_doubt_and_what_came_before_is_handed_on(tiny):
    first = tiny("first", epochs=1)
    train(first)
    learned = read_model(Path(first.out)).learned
    trained = [photo for photo, place in split_of(first).items() if place == "train"]
    assert [f"{mark:016x}" for mark in learned.marks.tolist()] == sorted(photo[:16] for photo in trained)
    assert learned.whole
    split = str(Path(first.out) / SPLIT)
    assert doubts(tiny("second", epochs=1, start=first.out, split=split)) == [
        "first was trained on none of the 10 evaluated files. A photo that was saved again is another file."
    ]
    third = tiny("third", epochs=1, seed=5, start=first.out)
    train(third)
    learned = read_model(Path(third.out)).learned
    both = {photo for config in (first, third) for photo, place in split_of(config).items() if place == "train"}
    assert len(learned.marks) == len(both) > 14


def test_photos_of_a_group_in_training_do_not_count_as_unseen(tiny, tmp_path):
    run = tiny("run", epochs=1, data=str(tmp_path / "photos.csv"))
    rows = [f"{path},{path.parent.name},{at - 3 if at % 8 == 3 else at},{['train', 'val', 'val', 'test'][at % 4]}"
            for at, path in enumerate(sorted((tmp_path / "photos").glob("*/*.png")))]
    Path(run.data).write_text("\n".join(["path,label,group,split", *rows]), "utf-8")
    train(run)
    assert [p["photos"] for p in read_model(Path(run.out)).sections["test"]["parts"] if p["name"] == UNSEEN] == [3]


def test_a_file_without_a_record_cannot_be_measured_and_its_heirs_say_so(tiny, tmp_path):
    first = tiny("first", epochs=1)
    train(first)
    old = tmp_path / "old.safetensors"
    write_model(old, replace(read_model(Path(first.out)), learned=None))
    second = tiny("second", epochs=1, start=str(old))
    (doubt,) = doubts(second)
    assert doubt.startswith("old.safetensors does not record its training photos")
    assert not read_model(Path(second.out)).learned.whole
    (first_said, second_said) = doubts(tiny("third", epochs=1, start=second.out, split=str(Path(second.out) / SPLIT)))
    assert "none of the 10 evaluated files" in first_said
    assert "there may be more data leakage" in second_said


def test_teachers_that_name_their_photos_are_measured_too(tiny, tmp_path):
    for name, seed in (("same", 0), ("other", 5)):
        train(tiny(name, epochs=1, seed=seed))
    split = str(Path(tiny("same").out) / SPLIT)
    student = tiny("student", epochs=1, split=split, teacher=(tiny("same").out, tiny("other").out))
    found = [text for text in told(student) if "is too high" in text]
    assert found
    assert all(text.startswith("Data leakage: other was trained on") for text in found)
    assert set(read_model(tmp_path / "other").learned.marks) < set(read_model(tmp_path / "student").learned.marks)
    old = tmp_path / "old"
    old.mkdir()
    write_model(old / BEST, replace(read_model(Path(tiny("other").out)), learned=None))
    (doubt,) = (text for text in told(replace(student, out=str(tmp_path / "again"), teacher=(str(old),)))
                if "is too high" in text)  # fmt: skip
    assert doubt.startswith("old was trained on other photos or another split")
