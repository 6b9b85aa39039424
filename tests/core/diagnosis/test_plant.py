"""Several photos of a plant: how they are grouped, and what they say together."""

import json
import os

import numpy as np
import pytest

from core.diagnose import main
from core.diagnosis.diagnosis_output import show_plants
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.plant import diagnose_plant, diagnose_plants, name_plants, pool_probabilities
from core.diagnosis.prediction import Diagnosis
from core.diagnosis.thresholds import CoveragePoint, Thresholds
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, DecisionRule, Prediction
from core.errors import EXIT_WRONG_INPUT
from tests.core.data.test_photo_groups import jpeg_taken
from tests.helpers.models import write_small_model
from tests.helpers.photo_files import corners, jpeg

CLASSES = ("apple/scab", "apple/rust", "background/none")
RULE = DecisionRule(CLASSES, Thresholds("energy", 0.0, 2, 0.9, (CoveragePoint(1.0, 0.6, 0.9, 0.0),)))


def seen(*probabilities, familiar=1.0):
    return Prediction(np.array(probabilities), familiar)


def diagnose(*photos):
    return diagnose_plant("plant", photos, RULE)


def test_photos_that_agree_are_surer_a_sure_one_outweighs_two_and_some_do_not_count():
    pooled = pool_probabilities(np.array([[0.6, 0.4], [0.6, 0.4]]))
    assert 0.6 < pooled[0] < 0.36 / (0.36 + 0.16)
    assert pooled[0] == pytest.approx(1 / (1 + (0.4 / 0.6) ** np.sqrt(2)))
    plant = diagnose(seen(0.98, 0.01, 0.01), seen(0.45, 0.5, 0.05), seen(0.45, 0.5, 0.05))
    assert (plant.verdict.word, plant.used, plant.photos) == ("apple/scab", 3, 3)
    plant = diagnose(seen(0.8, 0.15, 0.05), seen(0.01, 0.02, 0.97), seen(0.01, 0.98, 0.01, familiar=-1.0))
    assert (plant.verdict.word, plant.used, plant.photos) == ("apple/scab", 1, 3)
    assert plant.top[0].probability == pytest.approx(0.8)


@pytest.mark.parametrize("rule", [RULE, DecisionRule(CLASSES, None)])
@pytest.mark.parametrize(("photo", "word"), [
    (seen(0.01, 0.02, 0.97), NO_LEAF), (seen(0.9, 0.1, 0.0, familiar=-np.inf), NOT_SURE),
])  # fmt: skip
def test_a_plant_without_a_usable_photo_has_no_diagnosis(photo, word, rule):
    plant = diagnose_plant("plant", [photo, photo], rule)
    assert (plant.verdict.word, plant.used, plant.top) == (word, 0, ())
    assert plant.verdict.reason


def test_a_photo_counts_once_unreadable_ones_never_and_folders_of_one_name_are_told_apart():
    found = [Diagnosis(path, prediction=seen(0.9, 0.05, 0.05)) for path in ("a/1", "./a/1", os.path.abspath("a/1"))]
    found += [Diagnosis("a/2", error="broken"), Diagnosis("b/1", error="broken")]
    (plant,) = diagnose_plants(found, list("aaaab"), RULE)
    assert (plant.name, plant.photos, plant.verdict.word) == ("a", 1, "apple/scab")
    plants = diagnose_plants(found[:1] * 6, ["/v/x/a", "/w/x/a", "/y/a", "/x/b", "/", "."], RULE)
    assert [plant.title for plant in plants] == ["v/x/a", "w/x/a", "y/a", "b", "/", "."]


def test_the_folder_is_the_plant_or_photos_within_a_minute_of_the_one_before(tmp_path):
    assert name_plants(["x/a/1.jpg", "x/a/2.jpg", "x/b/1.jpg", "1.jpg"], "folder") == ["x/a", "x/a", "x/b", "."]
    paths = []
    for name, time in (("c", "10:02:01"), ("a", "10:00:00"), ("b", "10:01:00"), ("d", "10:01:50"), ("none", "")):
        path = tmp_path / f"{name}.jpg"
        path.write_bytes(jpeg_taken(corners(), f"2026:06:01 {time}") if time else jpeg(corners()))
        paths.append(str(path))
    names = name_plants(paths, "time")
    assert names == [paths[1], paths[1], paths[1], paths[1], paths[4]]
    assert name_plants([paths[0], paths[1], paths[2]], "time") == [paths[0], paths[1], paths[1]]
    none = [str(tmp_path / name) for name in ("missing.jpg", "no\0name.jpg", "pipe.jpg")]
    if hasattr(os, "mkfifo"):
        os.mkfifo(none[-1])
    assert name_plants(none, "time") == none


def test_a_column_of_a_manifest_names_the_plant(tmp_path, capsys):
    model, manifest = str(write_small_model(tmp_path / "m.safetensors")), tmp_path / "photos.csv"
    for name in "abcd":
        (tmp_path / f"{name}.jpg").write_bytes(jpeg(corners()))
    (tmp_path / "e.jpg").touch()
    manifest.write_text("Plant;path\n7;a.jpg\n 8 ;b.jpg\n7;c.jpg\n;d.jpg\n7;e.jpg\n")
    assert main([model, str(manifest), "--group", "plant", "--json", "--examine"]) == 0
    said, told = capsys.readouterr()
    assert told == f"{tmp_path / 'e.jpg'}: The file is empty.\n"
    plants = [json.loads(line) for line in said.splitlines()]
    assert [(p["plant"], p["photos"]) for p in plants] == [("7", 2), ("8", 1), (str(tmp_path / "d.jpg"), 1)]
    for photos, said in ((manifest, "has no column 'row'; its columns are Plant, path"), (tmp_path, "no CSV manifest")):
        assert main([model, str(photos), "--group", "row"]) == EXIT_WRONG_INPUT
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json", "csv"])
def test_a_plant_is_one_line(form, capsys):
    plants = [diagnose(seen(0.9, 0.05, 0.05), seen(0.9, 0.05, 0.05)), diagnose(seen(0.01, 0.02, 0.97))]
    assert show_plants(plants, form, ModelIdentity("m", "0" * 64, "2026-11-22")) == 2
    assert len(lines := capsys.readouterr().out.splitlines()) == (3 if form == "csv" else 2)
    if form == "json":
        told = json.loads(lines[0])
        assert (told["plant"], told["photos"], told["used"], told["verdict"]) == ("plant", 2, 2, "apple/scab")
    assert "There seems to be no leaf in these photos." in lines[-1]
    if form == "text":
        assert lines[0].startswith("plant (2 of 2 photos): apple/scab ")
