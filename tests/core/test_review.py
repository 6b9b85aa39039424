"""`leafclinic review` lists wrong labels and photos to label next, and applies corrections outside the photo folder."""

import csv
import json
import os
import sys

import cv2
import pytest

from core.data.array_file import write_arrays
from core.data.source import open_photos
from core.diagnosis import photo_features
from core.diagnosis.model_file import write_model
from core.review import main
from tests.core.diagnosis.test_adaptation import CLASSES
from tests.core.test_adapt import known, take_photos  # noqa: F401 - a fixture

WRONG = 3


@pytest.fixture
def folder(known, tmp_path):  # noqa: F811
    """A model, 48 photos of four classes of which one is in the wrong folder, and 12 photos without labels."""
    write_model(tmp_path / "known.safetensors", known)
    photos = take_photos(15, 2)
    for at, (shown, label) in enumerate(zip(photos.photos, photos.labels, strict=True)):
        place = tmp_path / "photos" / CLASSES[2 if at == WRONG else label] if at % 5 else tmp_path / "new"
        place.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(place / f"{at}.png"), shown[..., ::-1])
    return tmp_path


def call(folder, *more):
    return main([str(folder / "photos"), "--model", str(folder / "known.safetensors"), "--cache",
                 str(folder / "cache"), "--threads", "1", *more])  # fmt: skip


def listing(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "photos").rglob("*")}


def test_the_table_is_corrected_and_becomes_a_manifest_to_train_on(folder, capsys):
    (folder / "photos" / CLASSES[0] / "empty.png").touch()
    (folder / "photos" / CLASSES[2]).rename(folder / "photos" / "bean" / "ok;-y")
    before = listing(folder)
    assert call(folder, "--csv") == 0
    out, told = capsys.readouterr()
    assert told.startswith("48 photos of 4 classes (groups: 48). ")
    assert "1 photo is excluded: 1 x The file is empty" in told
    first = next(csv.DictReader(out.splitlines()))
    assert list(first.values())[:3] == [f"bean/ok;'-y/{WRONG}.png", "bean/ok;'-y", CLASSES[0]]
    one = f"path,label\n{first['path']},{first['suggested']}\n"
    for table, changed in ((out, 0), (out.splitlines()[0], 0), (one, 1)):
        (folder / "table.csv").write_text(table, "utf-8")
        assert main([str(folder / "photos"), "--corrections", str(folder / "table.csv"), "--cache",
                     str(folder / "cache"), "--out", str(folder / "own.csv")]) == 0  # fmt: skip
        assert capsys.readouterr().out == f"Labels changed: {changed}. Manifest: {folder / 'own.csv'}\n"
    corrected = open_photos(str(folder / "own.csv")).counts()
    assert corrected == dict.fromkeys((CLASSES[1], "bean/ok;-y", CLASSES[3]), 12) | {CLASSES[0]: 13}
    assert listing(folder) == before


@pytest.mark.skipif(sys.platform != "linux", reason="needs names that are not UTF-8")
def test_corrections_apply_to_photos_of_any_name(tmp_path):
    photos, table, own = (tmp_path / name for name in ("photos", "table.csv", "own.csv"))
    paths = [f"{folder}/{os.fsdecode(name)}" for folder in (" a", "b\\c") for name in (b"\xff.png", b"\xe9.png")]
    for path in paths:
        (photos / path).parent.mkdir(parents=True, exist_ok=True)
        (photos / path).touch()
    rows = "".join(f"{path},d\n" for path in paths[1:])
    table.write_text("path,label\n" + rows, "utf-8", "backslashreplace")  # as stdout does
    assert main([str(photos), "--corrections", str(table), "--out", str(own)]) == 0
    assert open_photos(str(own)).counts() == {"a": 1, "d": 3}


@pytest.mark.parametrize("label", [CLASSES[2], "apple/scab+rust"])
def test_json_lines_have_the_reason_and_text_the_same_and_the_order_of_labels_does_not_count(folder, capsys, label):
    for photo in (folder / "photos" / CLASSES[2]).iterdir():
        place = folder / "photos" / (label if int(photo.stem) % 2 else label.replace("scab+rust", "rust+scab"))
        place.mkdir(exist_ok=True)
        photo.rename(place / photo.name)
    assert call(folder, "--json", "--most", "1") == 0
    out, told = capsys.readouterr()
    answer = json.loads(out)
    assert (told.startswith("48 photos of 4 classes"), "Suspicious labels: 1." in told) == (True, True)
    assert (answer["label"], f"labelled {label};" in answer["reason"]) == (label, True)
    assert answer["probability"] > 0.5 > answer["label_probability"] > 0
    assert call(folder, "--most", "1") == 0
    assert capsys.readouterr().out == f"{answer['path']}: {answer['reason']}\n"


def test_unlabelled_photos_are_chosen_by_path_or_the_reason_is_said(folder, capsys, monkeypatch):
    labelled = sorted((folder / "photos" / CLASSES[0]).iterdir())
    for photo in labelled:
        (folder / "new" / f"copy{photo.name}").write_bytes(photo.read_bytes())
    stages = []
    monkeypatch.setattr("core.review.print_progress", lambda *stage: stages.append(stage))
    for most in (4, 14):
        assert call(folder, "--unlabelled", str(folder / "new"), "--choose", str(most), "--json") == 0
        paths = {json.loads(line)["path"] for line in capsys.readouterr().out.splitlines()}
        assert (len(paths), paths <= set(map(str, (folder / "new").glob("[!c]*")))) == (min(most, 12), True)
    assert ("cache", 23, 23) in stages
    assert call(folder, "--unlabelled", str(labelled[0].parent)) == 2
    assert "are among those with labels. Choose a folder of other photos." in capsys.readouterr().err
    for photo in (folder / "new").iterdir():
        photo.write_bytes(b"")
    assert call(folder, "--unlabelled", str(folder / "new")) == 2
    assert "None of the 23 photos can be used: " in capsys.readouterr().err


def test_stored_features_are_those_of_the_same_photos(folder, capsys, monkeypatch):
    """A second review computes features of new photos only, and its table is the same."""
    assert call(folder, "--csv") == 0
    first = capsys.readouterr().out
    computed = []
    compute = photo_features.compute_outputs
    monkeypatch.setattr(photo_features, "compute_outputs", lambda predictor, photos: (
        computed.append(len(photos)), compute(predictor, photos))[1])  # fmt: skip
    assert call(folder, "--csv") == 0
    assert (capsys.readouterr().out, computed) == (first, [])
    shown = take_photos(1, 9).photos[0]
    cv2.imwrite(str(folder / "photos" / CLASSES[0] / "more.png"), shown)
    assert call(folder, "--csv") == 0
    assert computed == [1]
    write_arrays(next((folder / "cache").rglob("*.features")), {"features": shown})
    assert (call(folder, "--csv"), sum(computed)) == (0, 50), "a file with other arrays counts as missing"
