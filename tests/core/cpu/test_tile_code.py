"""The code of the tiles is kept in a file, and damaged code is not run."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from core.cpu import tile_code
from core.cpu.instruction_set import current_isa
from core.cpu.microkernel import WHOLE, tile_shapes
from core.errors import StorageError

NAME = current_isa().name
load_table = tile_code._load_table.__wrapped__


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tile_code, "cache_folder", lambda: tmp_path)
    return tmp_path


def test_every_tile_has_an_address_and_nothing_else_has(folder):
    table = load_table(NAME)
    shapes = {whole * WHOLE + vectors * 64 + rows for vectors, rows, whole in tile_shapes(current_isa())}
    assert set(np.flatnonzero(table)) == shapes


def test_code_is_generated_once_and_again_where_it_was_damaged(folder, monkeypatch):
    made = []
    module = tile_code._module
    monkeypatch.setattr(tile_code, "_module", lambda isa: made.append(isa) or module(isa))
    load_table(NAME)
    load_table(NAME)
    assert len(made) == 1
    file = tile_code.code_file(NAME)
    whole = file.read_bytes()
    for damaged in (b"", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        file.write_bytes(damaged)
        assert np.count_nonzero(load_table(NAME))
        assert file.read_bytes() == whole
    assert len(made) == 3


def test_a_full_disk_costs_only_the_file(folder, monkeypatch):
    def fail(path, content):
        raise StorageError("full")

    monkeypatch.setattr(tile_code, "write_file", fail)
    assert np.count_nonzero(load_table(NAME))
    assert not list(folder.iterdir())


def test_threads_that_load_tiles_at_once_get_one_array(folder, monkeypatch):
    monkeypatch.setattr(tile_code, "_load_table", functools.cache(load_table))
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(tile_code.tile_table, [NAME] * 4))
    assert all(table is tables[0] for table in tables)
