"""The open photos: scanned in the background, changed with undo, locked, remembered."""

import pytest

from app.viewmodels.document import Document
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "leaves", {"healthy": 3, "rust": 2})


@pytest.fixture
def open_document(qtbot, home, nothing_left):
    """`open_document(path)`: a document with that folder open."""
    made = []

    def make(path):
        document = Document()
        made.append(document)
        with qtbot.waitSignal(document.opened):
            document.open(str(path))
        return document

    yield make
    for document in made:
        document.close()


def counts(document):
    return dict(zip(document.table.classes, document.table.counts().tolist(), strict=True))


def test_a_folder_is_opened_with_its_classes(open_document, folder):
    assert counts(open_document(folder)) == {"healthy": 3, "rust": 2}


def test_photos_are_left_out_and_taken_in_with_undo(open_document, folder):
    document = open_document(folder)
    document.exclude([0, 1], True)
    assert counts(document) == {"healthy": 1, "rust": 2}
    document.undo.undo()
    assert counts(document) == {"healthy": 3, "rust": 2}
    document.undo.redo()
    document.exclude([0], False)
    assert counts(document) == {"healthy": 2, "rust": 2}


def test_photos_change_class_with_undo(open_document, folder):
    document = open_document(folder)
    document.move([0], "mildew")
    assert counts(document) == {"healthy": 2, "rust": 2, "mildew": 1}
    document.undo.undo()
    assert counts(document)["healthy"] == 3


def test_a_class_is_renamed_or_joined_with_undo(open_document, folder):
    document = open_document(folder)
    document.rename("rust", "orange rust")
    assert counts(document)["orange rust"] == 2
    document.rename("orange rust", "healthy")
    assert counts(document)["healthy"] == 5
    document.undo.undo()
    document.undo.undo()
    assert counts(document)["rust"] == 2


def test_edits_are_there_again_when_the_folder_is_opened_anew(open_document, folder):
    before = sorted(p.read_bytes() for p in folder.rglob("*.png"))
    document = open_document(folder)
    document.exclude([0], True)
    document.move([1], "mildew")
    document.rename("rust", "orange rust")
    document.close()
    again = open_document(folder)
    assert {k: v for k, v in counts(again).items() if v} == {"healthy": 1, "mildew": 1, "orange rust": 2}
    assert again.table.excluded.tolist() == [True, False, False, False, False]
    assert sorted(p.read_bytes() for p in folder.rglob("*.png")) == before
    assert not list(folder.glob("*.json"))


def test_training_gets_the_source_itself_or_the_manifest_of_the_edits(open_document, folder):
    document = open_document(folder)
    assert document.manifest() == str(folder)
    document.exclude([0], True)
    assert document.manifest().endswith("manifest.csv")
    assert str(folder) not in document.manifest()


def test_a_folder_open_elsewhere_is_refused_in_words(open_document, folder, qtbot):
    open_document(folder)
    second = Document()
    with qtbot.waitSignal(second.failed) as told:
        second.open(str(folder))
    assert "another" in told.args[0]
    second.close()


def test_a_folder_without_photos_is_told(qtbot, home, tmp_path, nothing_left):
    document = Document()
    (tmp_path / "empty").mkdir()
    with qtbot.waitSignal(document.failed) as told:
        document.open(str(tmp_path / "empty"))
    assert "photo" in told.args[0]
    assert document.table is None
    document.close()


def test_a_scan_can_be_given_up(qtbot, home, tmp_path, nothing_left):
    document = Document()
    document.open(str(write_folder(tmp_path / "many", {"a": 40, "b": 40})))
    document.cancel()
    qtbot.wait(50)
    assert document.table is None
    assert not document.loading


def test_a_photo_is_found_by_its_path(open_document, folder):
    document = open_document(folder)
    assert document.row_of(document.table.dataset.path(3)) == 3
    assert document.row_of("/elsewhere.png") is None
