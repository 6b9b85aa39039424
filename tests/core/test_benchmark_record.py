"""Results of benchmarks: rows of an earlier run stay only with the commit and the date of their own."""

import json

import pytest

from benchmarks import record
from benchmarks.record import Row, write_results


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    return tmp_path


def rows(*names, rate=1.0):
    return [Row(name, rate, {"peer": 1.0}, "photos/s", rate) for name in names]


def test_rows_of_the_run_before_are_kept_in_order_with_their_commit_and_date(folder, monkeypatch):
    monkeypatch.setattr(record, "commit", lambda: "older")
    first = json.loads(write_results("sweep", rows("other", "b", "c"), "box").read_text())
    monkeypatch.setattr(record, "commit", lambda: "newer")
    second = json.loads(write_results("sweep", rows("a", "c", rate=2.0), "box", order=("a", "b", "c")).read_text())
    assert [(row["name"], row["ours"], row.get("commit")) for row in second["rows"]] == [
        ("a", 2.0, None), ("b", 1.0, "older"), ("c", 2.0, None), ("other", 1.0, "older")]
    assert second["commit"] == "newer"
    kept = second["rows"][1]
    assert kept["date"] == first["date"]
    assert "versions" not in kept, "they are the same as today's"


def test_a_row_keeps_its_own_commit_run_after_run_and_the_versions_it_was_made_with(folder, monkeypatch):
    names = ("a", "b", "c")
    for commit, version, name in (("first", "1", "a"), ("second", "2", "b"), ("third", "2", "c")):
        monkeypatch.setattr(record, "commit", lambda commit=commit: commit)
        monkeypatch.setattr(record, "versions", lambda version=version: {"torch": version})
        path = write_results("sweep", rows(name), "box", order=names)
    found = {row["name"]: row for row in json.loads(path.read_text())["rows"]}
    assert [found[name].get("commit") for name in names] == ["first", "second", None]
    assert found["a"]["versions"]["torch"] == "1"
    assert "versions" not in found["b"]


def test_without_an_order_a_file_is_of_one_run(folder):
    write_results("sweep", rows("a"), "box")
    path = write_results("sweep", rows("b"), "box")
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == ["b"]


@pytest.mark.parametrize(("features", "name"), [
    (("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"), "amd-epyc-4"),
    (("avx2", "fma"), "amd-epyc-avx2-4"), (("sse2",), "amd-epyc-portable-4"),
])  # fmt: skip
def test_processors_of_one_name_and_other_instructions_have_results_of_their_own(monkeypatch, features, name):
    monkeypatch.setattr(record, "processor", lambda: "AMD EPYC")
    monkeypatch.setattr(record, "usable_cores", lambda: 4)
    monkeypatch.setattr(record.llvmlite.binding, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    assert record.machine_name() == name
