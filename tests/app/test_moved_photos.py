"""Edits and cells of the confusion matrix, after the photos were moved, renamed or copied."""

import shutil
from hashlib import sha256
from unittest.mock import Mock

import pytest
from PySide6.QtWidgets import QInputDialog

from app import project
from app.moved_photos import find_moved
from core.errors import StorageError
from tests.app.test_document import folder, open_document  # noqa: F401 (fixtures)
from tests.helpers.window import write_folder

pytestmark = pytest.mark.gui
EDITED = ([True, False, False, False, False], ["healthy", "mildew", "healthy", "orange rust", "orange rust"])
PLAIN = ([False] * 5, ["healthy"] * 3 + ["rust"] * 2)


def shown(document):
    return document.table.excluded.tolist(), [document.table.label(row) for row in range(len(document.table.labels))]


def reopen(document, path, qtbot):
    """The sources of the edits that opening finds."""
    found = []
    document.found_edits.connect(found.extend)
    with qtbot.waitSignal(document.opened):
        document.open(str(path))
    return [edits.source for edits in found]


@pytest.fixture
def document(open_document, folder):  # noqa: F811
    made = open_document(folder)
    made.exclude([0], True)
    made.move([1], "mildew")
    made.rename("rust", "orange rust")
    made.confirm(2)
    made.close()
    return made


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_photos_that_were_moved_or_copied_keep_their_edits_until_undone(document, folder, qtbot, how):  # noqa: F811
    how(folder, there := folder.parent / "renamed")
    files = sorted(there.rglob("*"))
    assert reopen(document, there, qtbot) == [str(folder)]
    assert (shown(document), document.confirmed) == (EDITED, {"healthy/2.png": "healthy"})
    document.close()
    assert (reopen(document, there, qtbot), shown(document)) == ([], EDITED), "they are its own now"
    assert sorted(there.rglob("*")) == files, "nothing is written among the photos"
    document.exclude([4], True)
    shutil.move(there, third := folder.parent / "third")
    assert reopen(document, third, qtbot) == [str(there)], "which continues the others"
    assert document.table.excluded.tolist() == [True, False, False, False, True]
    document.undo.undo()
    assert (shown(document), document.confirmed) == (PLAIN, {})
    document.close()
    assert (reopen(document, third, qtbot), shown(document)) == ([], PLAIN), "discarded for good"


def test_photos_that_are_moved_back_have_the_edits_made_meanwhile(document, folder, qtbot):  # noqa: F811
    there = folder.parent / "there"
    for source, target, excluded in ((folder, there, 3), (there, folder, 4), (folder, there, 2)):
        shutil.move(source, target)
        assert reopen(document, target, qtbot) == [str(source)]
        document.exclude([excluded], True)
        document.close()
    assert document.table.excluded.tolist() == [True, False, True, True, True]


def test_half_of_the_photos_have_their_edits_and_those_of_the_others_are_kept(document, folder, qtbot):  # noqa: F811
    for name in ("healthy/1.png", "rust/0.png", "rust/1.png"):
        (half := folder.parent / "half").joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder / name, half / name)
    assert reopen(document, half, qtbot) == [str(folder)]
    assert shown(document) == ([False] * 3, ["mildew", "orange rust", "orange rust"])
    document.close()
    shutil.copytree(folder, half, dirs_exist_ok=True)
    assert (reopen(document, half, qtbot), shown(document)) == ([], EDITED)
    document.exclude([0], False)
    assert (reopen(document, half, qtbot), document.table.excluded.any()) == ([], False)


def test_of_several_folders_none_is_chosen_silently_and_own_edits_stay(start, qtbot, tmp_path, monkeypatch):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    program = start(write_folder(one, {"healthy": 3, "rust": 2}))
    document, notice = program.document, program.window.page("dataset").notice
    qtbot.waitUntil(lambda: document.table is not None)
    document.exclude([0], True)
    for place in (two, three):
        shutil.copytree(one, place)
    reopen(document, two, qtbot)  # before the timer has saved the edit
    assert f"You edited the same photos in {one}." in notice.text.text()
    document.exclude([1], True)
    for place, excluded in ((one, 1), (two, 2)):
        assert (reopen(document, place, qtbot), document.table.excluded.sum()) == ([], excluded)
        document.exclude([4], True)
    assert set(reopen(document, three, qtbot)) == {str(one), str(two)}
    assert (document.table.edited, notice.text.text().endswith("are used.")) == (False, True)
    monkeypatch.setattr(QInputDialog, "getItem", lambda *given: (str(two), True))
    notice.do.click()
    assert document.table.excluded.tolist() == [True, True, False, False, True]


def test_other_photos_of_the_same_names_and_other_manifests_have_no_edits(document, folder, qtbot, home):  # noqa: F811
    (home / "projects" / "damaged").mkdir()
    (home / "projects" / "damaged" / project.FILE).write_text("{")
    other = write_folder(folder.parent / "other", {"healthy": 3, "rust": 2})
    for photo in sorted(other.rglob("*.png"))[:3]:
        photo.write_bytes(photo.read_bytes() + b"0")
    assert (reopen(document, other, qtbot), shown(document)) == ([], PLAIN)
    lists = [folder / name for name in ("one.csv", "two.csv")]
    for path in lists:
        path.write_text("path,label\nhealthy/0.png,a\nrust/1.png,b\n")
        assert (reopen(document, path, qtbot), document.table.edited) == ([], False)
        document.exclude([0], True)
    lists[0].rename(folder / "three.csv")
    assert reopen(document, folder / "three.csv", qtbot) == [str(lists[0])]


def test_edits_that_cannot_be_saved_are_used_and_reported(document, folder, qtbot, monkeypatch):  # noqa: F811
    shutil.move(folder, there := folder.parent / "there")
    monkeypatch.setattr(project, "write_edits", Mock(side_effect=StorageError("no room")))
    with qtbot.waitSignal(document.failed) as failed:
        reopen(document, there, qtbot)
    assert (failed.args[0], shown(document)) == ("no room", EDITED)


def test_photos_of_a_run_are_found_where_they_are_now(folder, tmp_path):  # noqa: F811
    here, names = write_folder(tmp_path / "here", {"healthy": 3}), ("healthy/0.png", "healthy/1.png", "rust/0.png")
    given = [str(folder / name) for name in names], [sha256((folder / name).read_bytes()).hexdigest() for name in names]
    known = {str(path): 0 for path in here.rglob("*.png")}
    for source in (str(folder), str(folder / "list.csv")):
        assert find_moved(*given, source, str(here), known.get) == [str(here / name) for name in names[:2]]
    (here / names[1]).write_bytes(b"another photo")
    assert not find_moved(*given, str(folder), str(here), known.get)
