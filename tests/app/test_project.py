"""A folder of photos and what was changed about it, kept outside the folder."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from app import project
from app.project import MANIFEST, Edits, apply_edits, write_photos
from core.data.source import open_photos
from core.errors import InputError
from tests.helpers.window import write_folder


@pytest.fixture
def dataset(tmp_path):
    return open_photos(str(write_folder(tmp_path / "photos", {"healthy": 3, "rust": 2})))


def test_edits_are_collected_as_they_were_applied_and_those_of_gone_photos_do_nothing(dataset):
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


def test_photos_on_another_drive_are_named_in_full(tmp_path, dataset, monkeypatch):
    """Windows knows no relative path from one drive to another."""
    monkeypatch.setattr("os.path.relpath", Mock(side_effect=ValueError("path is on mount 'D:', start on mount 'C:'")))
    again = open_photos(str(write_photos(tmp_path / MANIFEST, apply_edits(dataset, Edits()))))
    assert [again.path(row) for row in range(5)] == [dataset.path(row) for row in range(5)]
