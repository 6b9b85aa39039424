"""The models in resources: whole, small, honest about itself, and right about leaves, strangers and no leaf."""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.model_card import render_card
from core.data.photo_reader import read_photo
from core.diagnosis.calibration import crop_of
from core.diagnosis.examination import Examiner
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import SHIPPED_MODELS, find_model
from core.diagnosis.verdict import NO_LEAF, NOT_SURE

PATH = Path(__file__).parents[3] / "resources" / "models" / "leaves.safetensors"
DATA = os.environ.get("LEAFCLINIC_DATA", "")


@pytest.fixture(scope="module")
def examiner():
    examiner = Examiner(read_model(PATH))
    yield examiner
    examiner.close()


@pytest.mark.parametrize(("name", "most_bytes", "classes"), [
    ("leaves", 8_000_000, 50), ("small", 2_000_000, 50), ("permissive", 8_000_000, 26),
])  # fmt: skip
def test_a_shipped_model_is_small_and_has_all_that_an_examination_needs(name, most_bytes, classes):
    path = find_model(Path(name))
    model = read_model(path)
    assert path.stat().st_size <= most_bytes
    assert len(model.classes) == classes
    assert not any(name.startswith(("rice/", "soybean/", "wheat/")) for name in model.classes)
    assert {"rejection", "calibration", "reading_leaf", "test", "data"} <= set(model.sections)
    assert path.with_suffix(".md").read_text("utf-8") == render_card(model, model.name)
    assert "intervals take groups into account" in model.sections["test"]["note"]


def test_the_table_lists_the_models_that_are_there():
    others = {"detector", "detector_fine", "segmentation"}
    assert {path.stem for path in PATH.parent.glob("*.safetensors")} == others.union(SHIPPED_MODELS)


def test_the_permissive_model_knows_no_photos_of_unsettled_licence():
    model = read_model(find_model(Path("permissive")))
    assert {crop_of(name) for name in model.classes} == {"background", "bean", "blackgram", "chilli", "citrus", "mango"}
    sources = model.sections["data"]["sources"]
    assert not any(word in text for text in sources for word in ("Unsettled", "PlantVillage", "PlantDoc"))


@pytest.mark.thorough
def test_noise_and_plain_colours_get_no_disease(examiner):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (300, 300, 3)).astype(np.uint8)
    for photo in (noise, np.full((300, 200, 3), 255, np.uint8), np.zeros((64, 64, 3), np.uint8)):
        assert examiner.examine(photo).verdict.word in (NOT_SURE, NO_LEAF)


@pytest.mark.skipif(not DATA, reason="LEAFCLINIC_DATA does not name the photos")
def test_known_leaves_are_named_and_scenes_refused(examiner):
    def say(path):
        return examiner.examine(read_photo(os.path.join(DATA, "leaves", path), 224))

    blight = say("tomato/late_blight/train_late_blight_759.webp")
    assert blight.verdict.word == "tomato/late_blight"
    assert 5 < blight.severity.percent < 40
    assert say("background/none/image_735.webp").verdict.word == NO_LEAF


@pytest.mark.skipif(not DATA, reason="LEAFCLINIC_DATA does not name the photos")
@pytest.mark.parametrize(("condition", "name"), [
    ("scab", "pp2021_c7c17c13e11f87b0"), ("cedar_apple_rust", "pp2021_e24eb8804f9f568d"),
    ("healthy", "pp2021_fea880b74f960c8b"),
])  # fmt: skip
def test_apple_leaves_in_the_orchard_are_named(examiner, condition, name):
    photo = read_photo(os.path.join(DATA, "field", "apple", condition, f"{name}.webp"), 288)
    assert examiner.examine(photo, crop=False).verdict.word == f"apple/{condition}"
