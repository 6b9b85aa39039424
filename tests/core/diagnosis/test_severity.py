"""Masks against photos marked by hand (masks/leaves.json) and against drawn leaves whose areas are known."""

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from benchmarks.pack_photos import chosen_rows
from benchmarks.severity import measure
from core.data.leaf_drawing import CONDITIONS, draw_leaf
from core.data.photo_reader import read_photo
from core.diagnosis import pixel_features
from core.diagnosis.context_features import MODEL, read_context
from core.diagnosis.model_identity import read_identity
from core.diagnosis.segmentation import KIND, PATH, VERSION, leaf_box, segment, segment_leaves
from core.diagnosis.severity import grade
from core.tensor_file import read_tensor_file

MARKED = json.loads((Path(__file__).parent / "masks" / "leaves.json").read_text())["photos"]
DATA = os.environ.get("LEAFCLINIC_DATA", "")
SIDE = 224


def drawn(background=(150, 140, 160), spots=()):
    photo = np.full((SIDE, SIDE, 3), background, np.uint8)
    cv2.ellipse(photo, (112, 112), (80, 55), 20, 0, 360, (60, 130, 50), -1)
    for x, y, r in spots:
        cv2.circle(photo, (x, y), r, (120, 80, 40), -1)
    noise = np.random.default_rng(0).normal(0, 3, photo.shape)
    return np.clip(photo + noise, 0, 255).astype(np.uint8)


def marked_masks(row):
    leaf, lesions = np.zeros((SIDE, SIDE), np.uint8), np.zeros((SIDE, SIDE), np.uint8)
    cv2.fillPoly(leaf, [np.round(row["leaf"]).astype(np.int32)], 1)
    for hole in row.get("holes", ()):
        cv2.fillPoly(leaf, [np.round(hole).astype(np.int32)], 0)
    for outline in row["lesions"]:
        cv2.fillPoly(lesions, [np.round(outline).astype(np.int32)], 1)
    for x, y, r in row["spots"]:
        cv2.circle(lesions, (round(x), round(y)), round(r), 1, -1)
    return leaf > 0, (lesions > 0) & (leaf > 0)


@pytest.mark.thorough
@pytest.mark.skipif(not DATA, reason="LEAFCLINIC_DATA does not name the photos")
def test_twenty_photos_marked_by_hand_are_met_within_five_points_of_leaf_area():
    errors, overlaps = [], []
    for row in MARKED:
        photo = read_photo(os.path.join(DATA, "leaves", row["photo"]), SIDE)
        leaf, lesions = marked_masks(row)
        got = segment(photo)
        errors.append(abs(got.percent - 100 * lesions.sum() / leaf.sum()))
        overlaps.append((got.leaf & leaf).sum() / (got.leaf | leaf).sum())
    assert len(errors) == 20
    assert np.mean(errors) <= 5.0
    assert np.median(overlaps) >= 0.9


@pytest.mark.parametrize("background", [(150, 140, 160), (220, 220, 225), (10, 10, 12), (120, 105, 130)])
def test_a_drawn_leaf_is_found_on_any_paper(background):
    leaf = segment(drawn(background)).leaf
    true = np.zeros((SIDE, SIDE), np.uint8)
    cv2.ellipse(true, (112, 112), (80, 55), 20, 0, 360, 1, -1)
    assert (leaf & (true > 0)).sum() / (leaf | (true > 0)).sum() > 0.95


def test_drawn_spots_are_measured_and_a_thin_blade_of_dead_tissue_is_a_diseased_leaf():
    spots = [(90, 100, 12), (140, 120, 9), (110, 130, 6)]
    got = segment(drawn(spots=spots))
    true = 100 * sum(np.pi * r * r for _, _, r in spots) / (np.pi * 80 * 55)
    assert got.percent == pytest.approx(true, abs=1.5)
    assert read_context()[0].photo_shape[0] == pixel_features.SIDE + 3, "the photo with its border is not scaled"
    assert segment(drawn()).percent < 0.5
    photo = np.full((SIDE, SIDE, 3), 225, np.uint8)
    cv2.rectangle(photo, (0, 108), (SIDE, 116), (125, 92, 50), -1)
    got = segment(photo)
    assert got.leaf.mean() == pytest.approx(9 / SIDE, rel=0.3)
    assert got.percent > 60


@pytest.mark.skipif(not DATA, reason="LEAFCLINIC_DATA does not name the photos")
@pytest.mark.parametrize(("crop", "most"), [("wheat", 6.0), ("soybean", 1.5)])
def test_lesions_of_crops_that_no_model_knows_are_measured(crop, most):
    root = Path(DATA) / "field"
    rows = [row for row in chosen_rows(root / "manifest.csv", ["val"], only=[crop]) if row["mask"]]
    found = [measure(root, row) for row in rows]
    assert np.mean([figures["error"] for figures in found]) <= most
    assert np.nanmean([figures["lesion"] for figures in found]) > 0.5


def test_the_network_was_trained_with_the_small_model_that_is_shipped():
    assert read_tensor_file(PATH, KIND, VERSION).header["context"] == read_identity(MODEL).hash


def test_paper_and_tiny_photos_have_no_leaf_and_the_box_is_square_and_holds_it():
    assert not segment(np.full((SIDE, SIDE, 3), (150, 140, 160), np.uint8)).leaf.any()
    for side in (1, 2, 7):
        assert segment(np.zeros((side, side, 3), np.uint8)).percent == 0
    leaf = np.zeros((100, 100), bool)
    leaf[40:60, 5:45] = True
    y0, x0, y1, x1 = leaf_box(leaf)
    assert y1 - y0 == x1 - x0 == 45
    assert leaf[y0:y1, x0:x1].sum() == leaf.sum()
    assert leaf_box(np.zeros((10, 12), bool)) == (0, 0, 10, 12)


def test_grades_of_horsfall_and_barratt():
    upper = (0, 3, 6, 12, 25, 50, 75, 88, 94, 97)
    assert [grade(percent) for percent in (*upper, 100)] == [*range(10), 11]
    assert [grade(percent + 0.1) for percent in upper] == [*range(1, 11)]


@pytest.mark.parametrize("gap", [0, 30])
def test_two_leaves_side_by_side_are_counted_and_one_is_one(gap):
    paper = np.full((200, 400, 3), 190, np.uint8)
    paper[40:160, 40:160] = (70, 140, 50)
    assert segment_leaves(paper)[1] == 1
    paper[40:160, 210 + gap : 330 + gap] = (70, 140, 50)
    found, leaves = segment_leaves(paper)
    assert leaves == 2
    assert found.leaf.mean() < 0.25, "one of them is outlined"
    paper[5:20, 180:195] = (70, 140, 50)
    assert segment_leaves(paper)[1] == 2, "a scrap is no leaf"


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_drawn_leaf_is_counted_once(condition):
    for leaf in range(3):
        assert segment_leaves(draw_leaf(condition, 3, leaf).rgb)[1] == 1
