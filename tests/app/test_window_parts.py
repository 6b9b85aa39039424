"""Settings, theme, resources, tables, results on file, the desktop entry: the small parts."""

import base64
import csv
import re
import shutil
from dataclasses import replace
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from PySide6.QtCore import QByteArray, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QComboBox

from app import installation, resources
from app.__main__ import main
from app.cards import card_html, find_card
from app.mask import encode_mask
from app.panels.train.confusion import ConfusionModel
from app.paths import RECENT
from app.processes.writing import render, write_csv
from app.theme import DARK, LIGHT, current_theme, stylesheet
from app.viewmodels.result import PhotoResult
from app.widgets.status_line import StatusLine
from core.diagnosis.model_identity import ModelIdentity
from core.diagnosis.severity import Severity
from core.errors import EXIT_FAILED
from tests.helpers.texts import ROOT
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui


def test_the_status_bar_shows_the_memory_in_use(qapp):
    status = StatusLine()
    used, total = re.fullmatch(r"Memory (.+) of (.+) GB", status.memory.text()).groups()
    assert 0 < float(used) < float(total)


def test_settings_come_back_as_they_were_set(settings):
    for name, value in (("expert", True), ("theme", "dark"), ("geometry", area := QByteArray(b"\x00\x01"))):
        settings.set(name, value)
    assert (settings.text("expert"), settings.text("theme"), settings.bytes("geometry")) == ("true", "dark", area)
    assert (settings.bytes("nothing").isEmpty(), settings.text("never set")) == (True, "")


def test_recent_folders_are_few_and_exist(settings, tmp_path):
    folders = [tmp_path / str(n) for n in range(RECENT + 2)]
    for folder in folders:
        folder.mkdir()
        settings.add_recent(str(folder))
    folders[-1].rmdir()
    settings.set("recent", ["n" * 300, None, *settings.paths("recent")])  # no file can have such a name
    settings.set("imported", 5)
    assert (settings.paths("recent"), settings.paths("imported")) == ([str(f) for f in reversed(folders[2:-1])], [])


def luminance(colour):
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in QColor(colour).getRgbF()[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_are_legible_on_their_backgrounds(colours):
    for text in (colours.text, colours.muted, colours.accent, colours.danger, colours.warning):
        for background in (colours.window, colours.surface, colours.raised, colours.accent_soft):
            assert contrast(text, background) >= 4.5, (text, background)
    assert contrast(colours.on_accent, colours.accent) >= 4.5
    assert all(contrast(curve, colours.surface) >= 2 for curve in colours.curves)
    assert not re.findall(r"@\w+", stylesheet(colours).split("*/", 1)[1]), "a colour of the style sheet is missing"


def test_the_theme_can_be_forced_and_says_so(qapp, qtbot, monkeypatch, tmp_path):
    icons = shutil.copytree(resources.place("icons"), tmp_path / "à b's (c)")  # where the program may be installed
    monkeypatch.setattr(resources, "place", lambda name: str(icons))
    theme, styled = current_theme(), Mock(wraps=qapp.setStyleSheet)
    theme.set("light")  # whatever a test before has set
    monkeypatch.setattr(qapp, "setStyleSheet", styled)
    with qtbot.waitSignal(theme.changed):
        theme.set("dark")
    assert theme.colours is DARK
    theme.set("light")
    assert theme.colours is LIGHT
    assert [bool(call.args[0]) for call in styled.mock_calls] == [False, True] * 2, "cleared first, which is faster"
    QComboBox().grab()  # Qt parses the style sheet now, and warns if it cannot


def test_every_icon_is_drawn_and_shown_somewhere(qapp):
    code = [path.read_text("utf-8") for path in ROOT.glob("app/**/*.py")]
    named = set(re.findall(r"[\"/](\w+)[\".]", "".join([*code, resources.text("style.qss")])))
    for path in ROOT.glob("resources/icons/*.svg"):
        assert path.stem in named
        drawn = resources.pixmap(path.stem, "#ff0000", 32).toImage()
        assert any(drawn.pixelColor(x, y).alpha() for x in range(32) for y in range(32)), path.name
    sharp = resources.pixmap("dataset", "#000000", 56, 2.0)
    assert (sharp.width(), sharp.deviceIndependentSize().width()) == (112, 56)


def test_a_card_is_found_by_class_or_by_its_last_part_if_there_is_one():
    assert find_card("tomato/early_blight", "en").name.startswith("Early blight")
    assert find_card("Tomato/Early blight", "vi").name.startswith("Đốm vòng")
    assert find_card("greening", "en").name.startswith("Citrus greening")
    assert find_card("powdery_mildew", "en") is None
    assert "no information about this class" in card_html(None)
    assert "&lt;" not in card_html(find_card("rice/blast", "en"))


def test_the_confusion_matrix_names_classes_as_the_diagnosis_does(qapp):
    model = ConfusionModel()
    model.show_matrix(("tomato/late_blight", "mango___leaf_spot"), ((3, 1), (0, 2)))
    down, across = Qt.Orientation.Vertical, Qt.Orientation.Horizontal
    shown, tip = Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole
    for side in (down, across):
        names = [model.headerData(at, side, shown) for at in (0, 1)]
        assert [name.replace("\n", " ") for name in names] == ["Late blight of tomato", "mango · leaf spot"]
        assert "tomato/late_blight" in model.headerData(0, side, tip)
    assert "75.0\u00a0%" in model.headerData(0, down, tip)
    assert model.headerData(0, across, shown) == "Late blight\nof tomato", "columns need half the width"
    assert "mango · leaf spot" in model.index(0, 1).data(tip)


MODEL = ModelIdentity("tomato 2026-11-22", "0123456789abcdef", "2026-11-22")
OTHER = ModelIdentity("citrus", "fedcba9876543210")
RESULTS = [
    PhotoResult(0, "/photos/a.jpg", True, "tomato/rust", (("tomato/rust", 0.9), ("tomato/healthy", 0.1)), diseased=12.0,
    model=MODEL), PhotoResult(1, "=cmd.jpg", True, error="The file is empty.", model=OTHER),
]  # fmt: skip
CANCELLED = (PhotoResult(2, "/photos/cancelled.jpg", cancelled=True), PhotoResult(3, "/photos/waiting.jpg"))


def test_results_go_to_a_table_that_spreadsheets_read_safely(tmp_path):
    write_csv(tmp_path / "out.csv", RESULTS)
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text("utf-8").splitlines()))
    assert rows[0]["label1"] == "tomato/rust"
    assert (float(rows[0]["probability2"]), rows[1]["path"]) == (pytest.approx(0.1), "'=cmd.jpg")
    assert rows[1]["error"] == "The file is empty."
    names = [(row["model"], row["model_hash"], row["model_date"]) for row in rows]
    assert names == [("tomato 2026-11-22", "0123456789abcdef", "2026-11-22"), ("citrus", "fedcba9876543210", "")]


def test_the_report_lists_photos_with_a_result_their_leaves_and_models():
    leaves = (RESULTS[0], replace(RESULTS[0], verdict="not sure"))
    head, details = render([replace(RESULTS[0], leaves=leaves), RESULTS[1], *CANCELLED]).split("Photo by photo")
    assert re.findall(r"<span[^>]*>([^<]*)", head) == ["Tomato · rust", "Unreadable"]
    assert re.findall(r"\w+\.jpg", details) == ["a.jpg", "cmd.jpg"], "photos without an answer are not listed"
    assert re.findall("<p>(Leaf [^.<]*)", details) == ["Leaf 1: Tomato · rust 90", "Leaf 2: Not sure"]
    assert "\u00a0%. Diseased share of the leaf area: 12" in details
    assert details.count("tomato 2026-11-22 (0123456789ab)") == details.count("citrus (fedcba987654)") == 1


@pytest.mark.parametrize(("verdict", "red"), [("tomato/rust", True), ("tomato/healthy", False), ("not sure", False)])
def test_only_diseased_leaves_have_red_outlines(tmp_path, verdict, red):
    photo = tmp_path / "grey.png"
    photo.write_bytes(cv2.imencode(".png", np.full((64, 64, 3), 120, np.uint8))[1].tobytes())
    leaf, lesions = np.zeros((2, 64, 64), bool)
    leaf[8:56, 8:56] = lesions[20:40, 20:40] = True
    whole = encode_mask(Severity(leaf, lesions), (0.0, 0.0, 1.0, 1.0))
    result = PhotoResult(0, str(photo), True, verdict, (("tomato/rust", 0.9),), diseased=17.0, measured=whole)
    (jpeg,) = re.findall(r"base64,([^\"]+)", render([result]))
    b, g, r = cv2.split(cv2.imdecode(np.frombuffer(base64.b64decode(jpeg), np.uint8), cv2.IMREAD_COLOR))
    assert (((r > 150) & (g < 110) & (b < 110)).sum() > 20) == red


def test_a_report_of_many_photos_has_small_pictures(tmp_path):
    photos = sorted(write_folder(tmp_path / "x", {"a": 1}).rglob("*.png"))
    few, many = ([replace(RESULTS[0], path=str(photos[0]))] * n for n in (200, 201))
    sides = []
    for results in (few, many):
        jpeg = re.search(r"base64,([^\"]+)", render(results))[1]
        sides.append(cv2.imdecode(np.frombuffer(base64.b64decode(jpeg), np.uint8), cv2.IMREAD_COLOR).shape[0])
    assert sides == [336, 192]


def test_the_desktop_entry_starts_what_is_installed_else_this_interpreter(tmp_path, monkeypatch):
    monkeypatch.setattr(installation.sys, "executable", str(tmp_path / "my bin" / "python"))
    monkeypatch.setattr(installation.shutil, "which", lambda name: None)
    assert installation.command() == f'"{tmp_path}/my bin/python" -m app'
    (tmp_path / "my bin").mkdir()
    (tmp_path / "my bin" / "leafclinic").touch()
    assert installation.command() == f'"{tmp_path}/my bin/leafclinic"'


def test_the_desktop_entry_is_written_with_its_icon(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert installation.install() == 0
    assert "%F" in (tmp_path / "applications" / "leafclinic.desktop").read_text("utf-8").split("Exec=")[1]
    assert (tmp_path / "icons/hicolor/scalable/apps/leafclinic.svg").read_bytes().startswith(b"<svg")
    assert str(tmp_path) in capsys.readouterr().out
    monkeypatch.setenv("XDG_DATA_HOME", __file__)
    assert main(["--install-desktop"]) == EXIT_FAILED
