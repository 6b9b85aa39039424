"""The page of a batch of diagnoses: whole without any other file, in a real browser too."""

from __future__ import annotations

import re
from dataclasses import replace

import cv2
import numpy as np
import pytest

from core.data.synthetic import encode_jpeg
from core.diagnosis.batch_report import Entry, make_entry, mark, render_batch
from core.diagnosis.examination import Examination
from core.diagnosis.model_file import ModelFile
from core.diagnosis.prediction import Diagnosis, Guess
from core.diagnosis.severity import Severity
from core.diagnosis.verdict import NOT_SURE, Verdict
from core.models import build, initial_weights
from tests.helpers.browser import look_at


@pytest.fixture(scope="module")
def model():
    graph = build("cnn", 2, 32)
    part = {"name": "all", "photos": 40, "right": 0.95, "interval": [0.83, 0.99]}
    parts = [part, {**part, "name": "field photos", "right": 0.7}, {**part, "name": "bean"}]
    test = {"note": "", "parts": parts, "macro_f1": 0.9, "classes": []}
    return ModelFile(graph, initial_weights(graph, 0), ("bean/healthy", "bean/bean_rust"), 32, sections={"test": test})


@pytest.fixture(scope="module")
def found():
    side = 64
    leaf = np.zeros((side, side), bool)
    leaf[10:50, 10:50] = True
    lesions = np.zeros_like(leaf)
    lesions[20:30, 20:30] = True
    heat = np.zeros((side, side), np.float32)
    heat[40:, 40:] = 1
    guesses = (Guess("bean/bean_rust", 0.9), Guess("bean/healthy", 0.001))
    return Examination(
        Verdict("bean/bean_rust"), guesses, np.array([0.001, 0.9]), np.full((side, side, 3), 90, np.uint8),
        (0.0, 0.0, 1.0, 1.0), Severity(leaf, lesions), (heat,), 0.6, 1.0, 5.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def entries(found):
    sure = Diagnosis("a/<one>.jpg", "bean/bean_rust", found.top, diseased=6.25, grade=3, notes=("60% lies off.",))
    unsure = replace(sure, path="two.jpg", verdict=NOT_SURE, reason="It may be either.", diseased=None, grade=None)
    return [make_entry(sure, found), make_entry(unsure, found), Entry(Diagnosis("bad.jpg", error="It is empty."))]


def test_the_page_says_all_of_every_photo(entries, model):
    page = render_batch(entries, model, "leaves.safetensors")
    assert re.search(r"bean rust.{0,40}: 1\.", page), "photos without a name are not counted among the classes"
    for words in ("3 photos", "leaves.safetensors", "bean: bean rust", "90.0", "6.2", "grade 3 of 11", "60% lies off.",
                  "It may be either.", "not readable", "It is empty.", "&lt;one&gt;.jpg", "field photos 70.0\u00a0%",
                  "Model card"):
        assert words in page
    assert "bean 95.0 %" not in page  # crops stand in the card; beside the whole only lab and field
    assert "bean: healthy" not in page  # a thousandth says nothing


def test_what_was_found_is_marked_on_the_photo(found):
    marked = mark(found).astype(int)
    assert marked[5, 30].tolist() == [90, 90, 90]
    assert marked[20, 25, 0] > marked[20, 25, 1] + 100  # lesions are outlined red
    assert marked[10, 30, 1] > marked[10, 30, 0] + 60  # the leaf green
    assert marked[60, 60, 0] > marked[60, 60, 2] + 60  # and what speaks for the answer is yellow


@pytest.mark.thorough
def test_a_browser_without_network_shows_it_whole(entries, model, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(render_batch(entries, model, "leaves.safetensors"), "utf-8")
    dom, shot = look_at(page, tmp_path)
    assert "It may be either." in dom
    assert dom.count("<img") == 4
    outside = re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import|<script""", dom)
    assert outside == []
    pixels = cv2.imread(str(shot))
    assert pixels.shape == (1600, 1100, 3)
    assert (np.abs(pixels.astype(int) - 90).max(axis=2) < 12).sum() > 5000  # the photos are there


def test_pictures_are_jpeg_files(found):
    entry = make_entry(Diagnosis("x"), found)
    assert entry.photo[:2] == encode_jpeg(found.photo, 80)[:2] == b"\xff\xd8"
    assert entry.photo != entry.marked
