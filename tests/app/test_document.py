"""The open photos: scanned in the background, changed with undo, locked, remembered."""

import os
import threading
import time
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from app import project
from app.project import MANIFEST, Edits, apply_edits, write_photos
from app.viewmodels.document import Document, places
from core.data.source import open_photos
from core.errors import InputError, StorageError
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "leaves", {"healthy": 3, "rust": 2})


@pytest.fixture
def open_document(qtbot, home, nothing_left):
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


@pytest.fixture
def document(open_document, folder):
    return open_document(folder)


def counts(document):
    return dict(zip(document.table.classes, document.table.counts().tolist(), strict=True))


def test_photos_are_left_out_taken_in_and_change_class_and_classes_are_renamed_or_joined_with_undo(document):
    undo, both, mildew = document.undo, {"healthy": 3, "rust": 2}, {"healthy": 2, "rust": 2, "mildew": 1}
    for act, given, left in (
        (document.exclude, ([0, 1], True), {"healthy": 1, "rust": 2}), (undo.undo, (), both),
        (undo.redo, (), {"healthy": 1, "rust": 2}), (document.exclude, ([0], False), {"healthy": 2, "rust": 2}),
        (document.exclude, ([1], False), both), (document.move, ([0], "mildew"), mildew),
        (document.move, ([0], "mildew"), mildew), (undo.undo, (), both),  # the second move is no step
        (document.rename, ("mildew", "no photo has it"), both), (undo.redo, (), mildew), (undo.undo, (), both),
        (document.rename, ("rust", "orange rust"), {"healthy": 3, "orange rust": 2}),
        (document.rename, ("orange rust", "healthy"), {"healthy": 5}),
        (undo.undo, (), {"healthy": 3, "orange rust": 2}), (undo.undo, (), both),
    ):  # fmt: skip
        act(*given)
        assert {name: n for name, n in counts(document).items() if n} == left, given


@pytest.mark.parametrize("typed", ["leaf rust", "Leaf Rust", " leaf_rust "])
def test_a_class_typed_as_it_is_shown_is_that_class(open_document, tmp_path, typed):
    document = open_document(write_folder(tmp_path / "named", {"healthy": 3, "leaf_rust": 2, "wilt": 1}))
    document.move([0], typed)
    document.rename("wilt", typed)
    document.rename("leaf_rust", "leaf rust")
    assert {name: n for name, n in counts(document).items() if n} == {"healthy": 2, "leaf_rust": 4}
    document.rename("healthy", "Healthy")
    assert "Healthy" in counts(document), "shown otherwise, a name is a new one"


def test_what_was_just_changed_is_there_when_the_same_folder_is_opened_again(document, folder, qtbot):
    document.exclude([2], True)  # not written yet
    with qtbot.waitSignal(document.opened):
        document.open(str(folder))
        document.exclude([1], True)  # while it opens
    assert document.table.excluded.tolist() == [False, True, True, False, False]


def test_what_is_changed_while_another_folder_opens_belongs_to_the_one_that_is_open(
    document, open_document, folder, qtbot, tmp_path, monkeypatch
):
    """Earlier changes and the rows of a million photos take seconds: they are looked up beside the event loop."""
    threads, plain = [], project.apply_edits
    monkeypatch.setattr("app.viewmodels.document.places", lambda of: {str(threading.current_thread()): 0} | places(of))

    def slow(*given):
        threads.append(threading.current_thread())
        time.sleep(0.3)
        return plain(*given)

    monkeypatch.setattr(project, "apply_edits", slow)
    other = write_folder(tmp_path / "other", {"a": 2, "b": 2})
    with qtbot.waitSignal(document.opened):
        document.open(str(other))
        qtbot.waitUntil(lambda: bool(threads))
        assert document.loading
        document.exclude([4], True)
    assert threads[0] is not threading.main_thread()
    assert str(threads[0]) in document._rows
    assert not document.table.excluded.any()
    assert open_document(folder).table.excluded.tolist() == [False] * 4 + [True]


def asked(document, qtbot):
    """What `with_manifest` tells, once it does: a source, or a sentence and details."""
    told = []
    document.with_manifest(told.append, lambda *why: told.append(why))
    qtbot.waitUntil(lambda: bool(told))
    return told[0]


def test_training_gets_the_source_itself_or_the_manifest_of_the_edits(document, folder, qtbot, monkeypatch):
    assert asked(document, qtbot) == str(folder)
    document.exclude([0], True)
    document.rename("rust", "orange rust")
    manifest = asked(document, qtbot)
    assert (manifest.endswith("manifest.csv"), str(folder) in manifest) == (True, False)
    assert open_photos(manifest).counts() == {"healthy": 2, "orange rust": 2}
    monkeypatch.setattr(project, "write_photos", Mock(side_effect=StorageError("no room")))
    assert asked(document, qtbot)[0] == "no room"


def test_a_manifest_of_many_photos_is_written_beside_the_event_loop(open_document, folder, qtbot, monkeypatch):
    document, writers, told = open_document(folder), [], []
    document.exclude([0], True)
    write = project.write_photos
    monkeypatch.setattr(project, "write_photos", lambda *of: (writers.append(get_ident()), write(*of))[1])
    for _ in range(2):
        document.with_manifest(told.append, lambda *why: told.append(why))
    document.exclude([1], True)
    qtbot.waitUntil(lambda: len(told) == 2)
    assert get_ident() not in writers
    assert len(Path(told[1]).read_text().splitlines()) == 4, "the second is given the photos as they are then"


def test_a_manifest_that_is_ready_when_its_photos_are_closed_is_not_used(document, qapp):
    told = []
    document.exclude([0], True)
    document.with_manifest(told.append, lambda *why: told.append(why))
    document._writing.wait()  # its signal is queued
    document.close()
    qapp.processEvents()
    assert not told


def test_a_manifest_is_written_where_the_home_folder_holds_the_photos(open_document, qtbot, home):
    photos = write_folder(home.parent / "leaves", {"healthy": 3, "rust": 2}).parent
    document = open_document(photos)
    document.exclude([0], True)
    assert len(Path(asked(document, qtbot)).read_text().splitlines()) == len(document.table.excluded)


def test_a_folder_open_elsewhere_is_refused_in_words(open_document, folder, qtbot, home):
    open_document(folder)
    second = Document()
    for then in (time.time(), time.time() - 3600):  # also after an hour
        os.utime(next((home / "projects").glob("*/lock")), (then, then))
        with qtbot.waitSignal(second.failed) as told:
            second.open(str(folder))
        assert "another" in told.args[0]
    second.close()


def test_a_folder_without_photos_and_a_data_folder_that_cannot_be_made_are_told(
    folder, qtbot, home, tmp_path, nothing_left
):
    document = Document()
    (tmp_path / "empty").mkdir()
    for photos, words in ((tmp_path / "empty", "There are no photos"), (folder, "projects is a file")):
        with qtbot.waitSignal(document.failed) as told:
            document.open(str(photos))
        assert words in told.args[0], "errors of core are shown as they are"
        assert (document.table, document.loading) == (None, False)
        assert not (home / "projects").is_dir() or not list((home / "projects").iterdir()), "an empty project"
        (home / "projects").rename(home / photos.name)
        (home / "projects").write_text("a file where a folder should be")
    document.close()


def test_a_scan_can_be_given_up_also_one_that_has_just_ended(document, tmp_path, folder, qtbot):
    other = str(write_folder(tmp_path / "many", {"a": 40, "b": 40}))
    document.open(other)
    document.cancel()
    qtbot.wait(50)
    assert (document.source, document.loading) == (str(folder), False)
    with qtbot.waitSignal(document.opened):
        document.open(str(folder))
        document._task.wait()  # its signal is queued
        document.open(other)
    assert (document.source, counts(document)) == (other, {"a": 40, "b": 40})


def test_rows_are_found_by_absolute_path_however_a_manifest_writes_it():
    written = ["a/1.jpg", "./a/2.jpg", "b/../a/3.jpg", "../c//4.jpg", "/other/5.jpg", "a/.hidden/6.jpg", "a/./7.jpg"]
    dataset = SimpleNamespace(root="/leaves/x/..", paths=written)
    wanted = ["/leaves/a/1.jpg", "/leaves/a/2.jpg", "/leaves/a/3.jpg", "/c/4.jpg", "/other/5.jpg",
              "/leaves/a/.hidden/6.jpg", "/leaves/a/7.jpg"]  # fmt: skip
    assert places(dataset) == {os.path.normpath(path): row for row, path in enumerate(wanted)}


def test_edits_are_collected_as_they_were_applied_and_those_of_gone_photos_do_nothing(folder):
    dataset = open_photos(str(folder))
    paths = list(dataset.paths)
    edits = Edits((paths[4],), {paths[0]: "rust", paths[1]: "quite new"}, {"healthy": "sound"})
    table = apply_edits(dataset, edits)
    assert [table.label(row) for row in range(5)] == ["rust", "quite new", "sound", "rust", "rust"]
    assert table.excluded.tolist() == [False] * 4 + [True]
    assert dict(zip(table.classes, table.counts().tolist(), strict=True))["sound"] == 1
    assert project.collect_edits(table, Edits(names=edits.names)) == edits
    table = apply_edits(dataset, Edits(("gone.png",), {"gone too.png": "rust"}, {"no such class": "x"}))
    assert not table.edited


def test_edits_that_cannot_be_read_say_what_to_do(tmp_path, monkeypatch):
    (tmp_path / project.FILE).write_text("{")
    with pytest.raises(InputError, match=r"project\.json cannot be read \(.*\)\. Remove it to see the photos"):
        project.read_edits(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(InputError, match=r"\(Permission denied\)\. Remove it"):
        project.read_edits(tmp_path)


def test_a_project_lies_in_one_place_per_folder_of_any_name(tmp_path):
    first, second = project.project_folder(tmp_path, "/a/leaves"), project.project_folder(tmp_path, "/b/leaves")
    assert first != second
    assert first.name.startswith("leaves-")
    for name in ("x" * 255, "ả" * 85):
        project.project_folder(tmp_path, f"/a/{name}").mkdir()


def test_photos_on_another_drive_are_named_in_full(tmp_path, folder, monkeypatch):
    """Windows knows no relative path from one drive to another."""
    dataset = open_photos(str(folder))
    monkeypatch.setattr("os.path.relpath", Mock(side_effect=ValueError("path is on mount 'D:', start on mount 'C:'")))
    again = open_photos(str(write_photos(tmp_path / MANIFEST, apply_edits(dataset, Edits()))))
    assert [again.path(row) for row in range(5)] == [dataset.path(row) for row in range(5)]
