"""The page of a batch of diagnoses: whole without any other file, in a real browser too."""

import re
from dataclasses import replace

import cv2
import numpy as np
import pytest

from core.diagnosis.batch_report import Entry, draw_picture, render_batch
from core.diagnosis.diagnosis_output import show_photos
from core.diagnosis.examination import Examination
from core.diagnosis.model_card import render_card_html
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.prediction import Diagnosis, LeafDiagnosis
from core.diagnosis.report_entry import label_text, make_entry, remarks
from core.diagnosis.severity import Severity
from core.diagnosis.verdict import NOT_SURE, UNFAMILIAR, ClassProbability, Prediction, Verdict
from tests.helpers.browser import look_at
from tests.helpers.models import small_model

NAMED = ModelIdentity("beans", "0123456789abcdef", "2026-11-22")


@pytest.fixture(scope="module")
def model():
    part = {"name": "all", "photos": 40, "right": 0.95, "interval": [0.83, 0.99]}
    parts = [part, {**part, "name": "field photos", "right": 0.7}, {**part, "name": "bean"}]
    test = {"note": "", "parts": parts, "macro_f1": 0.9, "classes": []}
    return small_model(("bean/healthy", "bean/bean_rust"), sections={"test": test})


@pytest.fixture(scope="module")
def found():
    side = 64
    leaf = np.zeros((side, side), bool)
    leaf[10:50, 10:50] = True
    lesions = np.zeros_like(leaf)
    lesions[20:30, 20:30] = True
    guesses = (ClassProbability("bean/bean_rust", 0.9), ClassProbability("bean/healthy", 0.001))
    return Examination(Verdict("bean/bean_rust"), guesses, Prediction(np.array([0.001, 0.9]), 0.6),
                       np.full((side, side, 3), 90, np.uint8), (0.0, 0.0, 1.0, 1.0), Severity(leaf, lesions))


@pytest.fixture(scope="module")
def entries(found):
    sure = Diagnosis("a/<one>.jpg", "bean/bean_rust", found.top, diseased=6.25, notes=("60% is not leaf.",))
    leaf = LeafDiagnosis((0, 0, 1, 1), found.verdict, found.top, found.prediction, 30.0)
    sure = replace(sure, leaves=(leaf, replace(leaf, verdict=Verdict(NOT_SURE)), replace(leaf, lesions=0.0)))
    unsure = replace(sure, path="two.jpg", verdict=NOT_SURE, reason="It may be either.", diseased=None)
    cases = ((sure, found), (unsure, found), (Diagnosis("bad.jpg", error="It is empty."), None))
    return [make_entry(diagnosis, examined, NAMED, 336) for diagnosis, examined in cases]


def test_the_page_begins_with_a_table_and_says_all_of_every_photo(entries, model):
    page = render_batch(entries, remarks(model), render_card_html(model))
    for words in ("Photos: 3.", "Model: beans (2026-11-22, 0123456789ab). Photos: 3.", "bean: bean rust", "90.0", "6.2",
                  "Grade 3 of 11", "60% is not leaf.", "Leaf 2: not sure.", "No diseased area was found.",
                  "Leaf 1: bean: bean rust 90.0\u00a0%. About 30.0\u00a0% of the leaf area is diseased. Grade 5",
                  "It may be either.", "unreadable", "It is empty.",
                  "&lt;one&gt;.jpg", "field photos 70.0\u00a0%", "Accuracy"):
        assert words in page
    assert page.count("beans") == 1, "a page of one model names it once"
    assert "bean 95.0 %" not in page  # crops stand in the card; beside the whole only lab and field
    assert "bean: healthy" not in page  # a thousandth says nothing
    page = render_batch(entries)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page.split("Photo by photo")[0])
    cells = [re.sub(r"<[^>]+>", " ", row).split() for row in rows[:4]]
    assert [row[0] for row in cells] == ["Diagnosis", "bean:", "not", "unreadable"], "without a diagnosis at the end"
    assert cells[1] == ["bean:", "bean", "rust", "1", "33.3", "%", "90.0", "%", "6", "%"]


def test_what_was_found_is_outlined_on_the_photo_a_part_in_its_place(found):
    leaf, lesions = found.severity.leaf, found.severity.lesions
    for shown in (lesions, None):
        picture = draw_picture(found.photo, leaf, shown, 64)
        pixels = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR).astype(int)  # BGR
        assert abs(pixels[4, 30] - 90).max() < 12
        assert pixels[10, 30, 1] > pixels[10, 30, 2] + 20  # the leaf green
        assert (pixels[20, 25, 2] > pixels[20, 25, 1] + 40) == (shown is not None)  # lesions red
    picture = draw_picture(found.photo, np.ones((8, 8), bool), None, 64, (0.5, 0.5, 1.0, 1.0))
    pixels = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR).astype(int)
    green = (pixels[..., 1] - pixels[..., 2] > 20).nonzero()
    assert (green[0].min(), green[1].min()) == pytest.approx((32, 32), abs=2)


@pytest.mark.thorough
def test_a_browser_without_network_shows_it_whole(entries, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(render_batch(entries), "utf-8")
    dom, shot = look_at(page, tmp_path)
    assert "It may be either." in dom
    assert dom.count("<img") == 2
    assert re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import|<script""", dom) == []
    pixels = cv2.imread(str(shot))
    assert pixels.shape == (1600, 1100, 3)
    assert (np.abs(pixels.astype(int) - 90).max(axis=2) < 12).sum() > 5000  # the photos are there


def test_a_label_set_is_written_as_a_list():
    assert label_text("apple/scab+black_rot") == "apple: scab + black rot"


TOP = (ClassProbability("tomato/late_blight", 0.99996), ClassProbability("tomato/leaf_mold", 0.00004))


def test_terminal_and_page_state_nothing_as_certain_and_no_probability_of_an_unfamiliar_photo(capsys):
    found = [Diagnosis("a.jpg", TOP[0].label, TOP, diseased=0.0), Diagnosis("b.jpg", NOT_SURE, TOP, reason=UNFAMILIAR)]
    assert show_photos(found, "text", ModelIdentity()) == 2
    assert capsys.readouterr().out.splitlines() == [
        "a.jpg: tomato/late_blight > 99.9 %, tomato/leaf_mold < 0.1 %", f"b.jpg: {NOT_SURE}. {UNFAMILIAR}"]
    text = render_batch([Entry("a.jpg", "late blight", "sick", guesses=(("late blight", 0.99996),))])
    assert "<b>&gt;\u00a099.9\u00a0%</b>" in text
    alike = render_batch([Entry(path, "rust", "sick") for path in ("x/a/1.jpg", "y/a/1.jpg", "y/2.jpg", "y/2.jpg")])
    assert re.findall('"muted">(.*?)</small>', alike) == ["x/a/1.jpg", "y/a/1.jpg", "2.jpg", "2.jpg"]
    assert '<td class="n" align="right" width="19%">&gt;\u00a099.9' in text
