"""Results of benchmarks: rows of an earlier run stay only with the commit and the date of their own."""

import json

import pytest

from benchmarks import record
from benchmarks.record import make_row, write_results


def rows(*names, rate):
    return [make_row(name, rate, {"slower": 2.0, "peer": 4.0}, "photos/s") for name in names]


def test_rows_of_earlier_runs_are_kept_in_order_with_their_own_commit_date_and_versions(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setenv("LEAFCLINIC_DATA", str(tmp_path))
    monkeypatch.setattr("sys.orig_argv", ["/bin/python", "-m", "a.b", str(tmp_path / "leaves"), "--out=x", "/home/y"])
    for commit, version, names in (("one", "1", ("other", "b", "c")), ("two", "2", "d"), ("three", "2", "ac")):
        monkeypatch.setattr(record, "commit", lambda commit=commit: commit)
        monkeypatch.setattr(record, "versions", lambda version=version: {"torch": version})
        path = write_results("sweep", rows(*names, rate=len(written)), "box", order="abcd")
        written.append(json.loads(path.read_text()))
    old = {"torch": "1"}
    assert [(row["name"], row["ratio"], row.get("commit"), row.get("versions")) for row in written[-1]["rows"]] == [
        ("a", 0.5, None, None), ("b", 0, "one", old), ("c", 0.5, None, None), ("d", 0.25, "two", None),
        ("other", 0, "one", old)]  # fmt: skip
    assert (written[-1]["commit"], written[-1]["rows"][1]["date"]) == ("three", written[0]["date"])
    assert written[-1]["command"] == "python -m a.b $LEAFCLINIC_DATA/leaves --out=x y", "no path of this machine"
    path = write_results("sweep", [make_row("b", 2.0, {}, "s"), make_row("c", 2.0, {"p": 3.0, "q": 4.0}, "ms")], "box")
    of_one_run = json.loads(path.read_text())["rows"]
    assert [(row["name"], row.get("ratio")) for row in of_one_run] == [("b", None), ("c", 1.5)], "without an order"


@pytest.mark.parametrize(("features", "name"), [
    (("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx2", "fma"), "amd-epyc-4"),
    (("avx2", "fma"), "amd-epyc-avx2-4"), (("sse2",), "amd-epyc-portable-4"),
])  # fmt: skip
def test_processors_of_one_name_and_other_instructions_have_results_of_their_own(monkeypatch, features, name):
    monkeypatch.setattr(record, "processor", lambda: "AMD EPYC")
    monkeypatch.setattr(record, "usable_cores", lambda: 4)
    monkeypatch.setattr(record.llvmlite.binding, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    assert record.machine_name() == name
