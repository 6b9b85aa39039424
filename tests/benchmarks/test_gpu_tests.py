"""The runner of the GPU's tests, on tests that need none."""

import pytest

from benchmarks import gpu_tests
from benchmarks.gpu_test_log import read_log
from tests.helpers.texts import ROOT

TESTS = """
import os, time, pytest
pytestmark = pytest.mark.gpu
def test_good(): pass
def test_bad(): assert 1 == 2, "one is not two"
def test_left_out(): pytest.skip("not here")
def test_slow(): time.sleep(60)
def test_dies(): os._exit(3)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("import missing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(gpu_tests, "PAUSE", 0.2)
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):  # of the process that runs this test
        monkeypatch.delenv(name, raising=False)
    plain, names = ("-p", "no:pytestqt", "-n", "1"), "test_some.py::test_{}".format
    return lambda words, *more: gpu_tests.start_tests("some", tmp_path, list(map(names, words)), *plain, *more)


@pytest.mark.thorough
def test_outcomes_are_counted_also_of_tests_that_die_or_take_too_long(start):
    part = start(("good", "bad", "left_out", "dies", "slow"), "--timeout", "3", "test_other.py")
    gpu_tests.watch([part], 60, lambda part: None)
    outcome = part.found()
    assert (outcome["passed"], outcome["failed"], outcome["skipped"]) == (1, 4, 1)
    assert "No module named 'missing'" in outcome["failures"].pop("test_other.py")
    assert set(outcome["failures"]) == {f"test_some.py::test_{word}" for word in ("bad", "dies", "slow")}
    assert "one is not two" in outcome["failures"]["test_some.py::test_bad"]
    assert not outcome["unfinished"]
    assert "test_some.py::test_good" in outcome["slowest"]


@pytest.mark.thorough
def test_what_does_not_end_in_time_is_named(start):
    part = start(("good", "slow"))
    gpu_tests.watch([part], 8, lambda part: None)
    assert (part.found()["unfinished"], part.found()["passed"]) == (["test_some.py::test_slow"], 1)


def test_a_half_written_line_of_the_log_waits():
    assert read_log(['{"name": "a", "begin": true, "time": 1}\n', '{"name": "a", "en']).unfinished == ["a"]


def test_a_sanitizers_last_line_counts_the_errors():
    said = "========= COMPUTE-SANITIZER\nall steps taken\n========= ERROR SUMMARY: 0 errors\n"
    assert gpu_tests.read_sanitizer(said) == {"all steps taken": True, "said": "ERROR SUMMARY: 0 errors", "errors": []}
    invalid = "========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 1 error\n"
    found = gpu_tests.read_sanitizer(invalid)
    assert found["errors"] == ["Invalid __global__ read of size 4 bytes"]
    assert not found["all steps taken"]
    assert gpu_tests.read_sanitizer("")["said"] == "nothing"
