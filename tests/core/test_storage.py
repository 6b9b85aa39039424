"""Files written whole, whatever their names and whoever else writes them; names that must not touch what is there."""

import errno
import os
from pathlib import Path

import pytest

from core.data.file_lock import locked
from core.errors import StorageError
from core.storage import create_unused, open_new, saving, storage_error, unused, write_file


def test_names_that_are_no_text_keep_their_bytes_in_a_file_with_a_name_as_long_as_the_system_allows(tmp_path):
    path, before = tmp_path / ("x" * 250 + ".html"), os.umask(0o020)
    write_file(path, os.fsdecode(b"caf\xe9.jpg"))
    os.umask(before)
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o646, "as the umask allows"
    assert path.read_bytes() == b"caf\xe9.jpg"
    assert list(tmp_path.iterdir()) == [path]


def test_two_programs_write_one_file_in_the_same_instant(tmp_path, monkeypatch):
    """The second begins and ends while the first is about to put its file in place."""
    path, sync = tmp_path / "run.json", os.fsync
    monkeypatch.setattr(os, "getpid", lambda: 1)

    def second(handle):
        sync(handle)
        monkeypatch.setattr(os, "fsync", sync)
        monkeypatch.setattr(os, "getpid", lambda: 2)
        write_file(path, "second")

    monkeypatch.setattr(os, "fsync", second)
    write_file(path, "first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_that_leads_nowhere_is_told_where_a_folder_is_needed(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    for path in (tmp_path / "link", tmp_path / "link/in it", Path(__file__) / "in it"):
        with pytest.raises(StorageError, match=r"(link|\.py) is a file, or a link that leads nowhere"):
            create_unused(path / "run")


def test_a_name_in_use_is_numbered(tmp_path):
    photo, run = tmp_path / "20261121-pasted.png", tmp_path / "20261121-squeezenet1_1"
    assert unused(photo) == photo
    photo.symlink_to("nowhere")
    unused(photo).touch()
    assert unused(photo).name == "20261121-pasted-3.png"
    run.mkdir()
    assert unused(run).name == "20261121-squeezenet1_1-2"


def test_a_file_system_that_is_read_only_is_told(tmp_path, monkeypatch):
    def refuse(path, *of, **named):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)  # so does the system, even where there is nothing to remove
    with pytest.raises(StorageError, match="Read-only file system. Choose another folder"):
        write_file(tmp_path / "a.txt", "text")
    with pytest.raises(BrokenPipeError), saving(tmp_path):  # of the progress, whose reader is gone
        raise BrokenPipeError


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_at_the_temporary_name_is_not_followed(tmp_path, monkeypatch):
    """In a folder that others may write, too, it would lead to another file of this user."""
    monkeypatch.setattr("core.storage.secrets.token_hex", lambda count: "0" * 2 * count)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for name in (f"table.csv.{os.getpid()}.writing", f"table.csv.{os.getpid()}.00000000.writing"):
        (tmp_path / name).symlink_to(mine)
    with pytest.raises(StorageError, match="File exists"):
        write_file(tmp_path / "table.csv", "other")
    assert mine.read_text() == "precious"
    with pytest.raises(FileExistsError):
        open_new(mine)


@pytest.mark.skipif(os.name == "nt", reason="Windows syncs no folders, and its locks are others")
def test_file_systems_that_sync_no_folders_are_used_and_those_without_locks_refused(tmp_path, monkeypatch):
    def refuse(handle, *how):
        if how or os.path.isdir(handle):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("core.storage.os.fsync", refuse)
    write_file(tmp_path / "a.txt", "text")
    monkeypatch.setattr("core.data.file_lock.fcntl.flock", refuse)
    with pytest.raises(OSError, match="Invalid"), locked(tmp_path / "lock", lambda: pytest.fail("it waits for ever")):
        pass


@pytest.mark.parametrize(("number", "remedy"), [
    (errno.ENOSPC, "Free disk space or choose another folder."), (errno.EACCES, "Choose another folder."),
])  # fmt: skip
def test_room_is_asked_for_only_where_it_lacks(number, remedy):
    reason = os.strerror(number)
    assert str(storage_error(Path("a"), OSError(number, reason))) == f"a could not be saved: {reason}. {remedy}"
