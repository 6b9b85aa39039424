"""Photo caches stay within their limit: the one used longest ago goes first, never one that is used or written."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from core.caches import main
from core.data.cache import open_cache
from core.data.cache_limit import empty_cache, list_caches, read_limit, write_limit
from core.data.file_lock import locked
from core.data.folder import open_folder
from core.data.near_duplicates import find_near_duplicates
from core.errors import EXIT_FAILED, EXIT_WRONG_INPUT
from tests.helpers.photo_files import leaf_folder

SIDE = 24


@pytest.fixture
def three(tmp_path):
    sets = [open_folder(leaf_folder(tmp_path / name, seed=seed)) for seed, name in enumerate("abc")]
    for age, dataset in zip((300, 200, 100), sets, strict=True):
        home = fill(dataset, tmp_path / "store").home
        os.utime(home, (1e9 - age, 1e9 - age))
    return sets


def fill(dataset, store):
    return open_cache(dataset, SIDE, folder=str(store))


def names(store):
    return [use.home.name[0] for use in list_caches(store)]


def test_the_cache_used_longest_ago_is_emptied_first(three, tmp_path):
    store = tmp_path / "store"
    assert names(store) == ["c", "b", "a"]
    write_limit(store, int(2.5 * list_caches(store)[0].size))
    mapped = fill(three[0], store)
    assert names(store) == ["a", "c"]
    assert mapped.photos.any()
    again = fill(three[1], store)
    assert names(store) == ["b", "a"]
    assert np.array_equal(again.gather(again.kept[:1])[0], fill(three[1], store).photos[0])


def test_a_cache_larger_than_the_limit_is_kept_while_it_is_the_one_in_use(three, tmp_path):
    write_limit(tmp_path / "store", 1)
    assert len(fill(three[2], tmp_path / "store").kept) == len(three[2])
    assert names(tmp_path / "store") == ["c"]


def test_a_cache_that_is_being_written_or_of_another_user_is_kept(three, tmp_path, monkeypatch, capsys):
    home = list_caches(tmp_path / "store")[0].home
    with locked(home / f"{SIDE}.lock", lambda: None):
        assert not empty_cache(home)
        assert main(["--clear", "--folder", str(tmp_path / "store")]) == 0
    assert (names(tmp_path / "store"), "was kept" in capsys.readouterr().err) == (["c"], True)
    monkeypatch.setattr("core.data.cache_limit.locked", Mock(side_effect=PermissionError))
    assert not empty_cache(home)


def test_nothing_else_in_the_folder_is_touched(three, tmp_path):
    (mine := tmp_path / "store" / "mine").mkdir()
    for name in ("notes.index", "yarn.lock", "2024.lock", "2024-05-01.jpg", "2024.index.txt"):
        (mine / name).write_text("mine")
    assert main(["--clear", "--folder", str(tmp_path / "store")]) == 0
    assert names(tmp_path / "store") == []
    assert [file.read_text() for file in mine.iterdir()] == ["mine"] * 5
    assert len(fill(three[0], tmp_path / "store").kept) == len(three[0])


def test_the_command_shows_and_limits(three, tmp_path, capsys):
    store = str(tmp_path / "store")
    assert main(["--folder", store]) == 0
    assert "of at most 20 GB" in capsys.readouterr().out
    assert main(["--folder", store, "--limit", "1.5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["limit"], len(told["caches"])) == (1_500_000_000, 3)
    for folder, limit, code in ((store, "-1", 2), (store, "nan", 2), (store, "inf", 2), (__file__, "1", EXIT_FAILED)):
        assert main(["--folder", folder, "--limit", limit]) == code


@pytest.mark.parametrize("written", ["", "many", "\xff", "1" * 10_000])
def test_a_limit_that_is_no_number_is_the_usual_one(tmp_path, written):
    (tmp_path / "limit").write_bytes(written.encode("latin-1"))
    assert read_limit(tmp_path) == 20_000_000_000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes there")
def test_a_pipe_called_limit_is_refused_until_a_limit_is_set(tmp_path, capsys):
    os.mkfifo(tmp_path / "limit")
    given = ["--folder", str(tmp_path)]
    assert (main(given), main([*given, "--limit", "1"]), main(given)) == (EXIT_WRONG_INPUT, 0, 0)
    assert "limit is a pipe or a device." in capsys.readouterr().err


def test_of_an_emptied_cache_only_the_lock_is_left(three, tmp_path):
    find_near_duplicates(cache := fill(three[0], tmp_path / "store"))
    home = Path(cache.home)
    for more in ("-0123456789abcdef.features", "-leaves-3.npz", ".index.77.89abcdef.writing"):
        (home / f"{SIDE}{more}").touch()
    assert empty_cache(home)
    assert [file.name for file in home.iterdir()] == [f"{SIDE}.lock"]
