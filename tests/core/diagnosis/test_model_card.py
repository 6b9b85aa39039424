from dataclasses import replace

import numpy as np
import pytest

from benchmarks.model_card import render_card
from core.diagnosis.model_card import render_card_html
from core.diagnosis.model_file import DATA, TEST, in_bits
from tests.helpers.models import small_model


@pytest.fixture(scope="module")
def model():
    return small_model(("bean/healthy", "bean/rust"), 32, temperature=0.8, data_hash="abc", licence="MIT")


def test_a_bare_model_has_a_heading_and_its_data_only_and_the_size_is_the_files(model):
    card = render_card(model, "Beans")
    assert card.startswith("# Beans\n")
    assert "2 classes." in card
    assert "abc" in card
    assert "## Accuracy" not in card
    large = replace(model, extra={"means": np.zeros((500, 1000), np.float32)})
    whole, half = (1e-6 * (2_000_000 + bytes_of * model.parameters) for bytes_of in (4, 2))
    assert f" {whole:.1f} MB. Input" in render_card(large, "Beans")
    assert f" {half:.1f} MB (half-precision weights). Input" in render_card(in_bits(large, 16), "Beans")


def test_every_section_of_the_file_is_told(model):
    row = {"name": "bean/rust", "photos": 40, "right": 0.95, "interval": [0.83, 0.99]}
    full = replace(model, sections={
        DATA: {"sources": ["Photos of beans."], "weaknesses": [7, "Only one farm."]}, "calibration": {"error": 0.012},
        TEST: {"note": "On the test split.", "parts": [{**row, "name": "all"}], "macro_f1": 0.9,
               "classes": [{**row, "precision": 0.9, "f1": 0.925}, {**row, "predicted": 0, "precision": 0, "f1": 0}]},
        "rejection": {"score": "energy", "far": 1.0, "no_leaf_class": -1, "no_leaf": 1.0,
                      "curve": [[1.0, 0.2, 0.95, 0.0], [0.98, 0.6, 0.99, 0.01]]},
        "reading_leaf": {"photos": 9, "border": 0.8, "commonest": 0.5, "plain": 0.95, "blurred": 0.9, "swapped": 0.7},
    })  # fmt: skip
    card = render_card(full, "Beans")
    assert "| bean/rust | 40 | 95.0\u00a0% | 83.0–99.0\u00a0% | 90.0\u00a0% | 0.925 |\n" in card
    assert "83.0–99.0\u00a0% | – | 0.000 |" in card, "the precision of no prediction"
    assert "98\u00a0% of the validation photos have a high enough confidence; 99.0\u00a0% of these" in card
    assert "predictions are correct, and 1.0\u00a0%" in card
    assert "error: 1.2 points" in card
    assert "changes from 95.0\u00a0% to 70.0\u00a0%" in card
    assert card.rstrip().endswith("- Only one farm.")
    page = render_card_html(full)
    for words in ("83.0–99.0\u00a0%", "Only one farm.", "changes from 95.0 % to 70.0 %", "Accuracy"):
        assert words in page
    assert "<script" not in render_card_html(replace(full, licence="<script>"))
