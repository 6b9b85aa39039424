"""The runner of the GPU's tests, on tests that need none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import gpu_tests

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
def names(tmp_path, monkeypatch):
    (tmp_path / "test_some.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return {word: f"test_some.py::test_{word}" for word in ("good", "bad", "left_out", "slow", "dies")}


@pytest.mark.thorough
def test_outcomes_are_counted_and_failures_told(names):
    outcome = gpu_tests.run_side_by_side([names[n] for n in ("good", "bad", "left_out")], 2, 60)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 1)
    assert outcome.failures == {"test_some::test_bad": "AssertionError: one is not two"}


@pytest.mark.thorough
def test_what_dies_or_does_not_end_counts_as_failed(names):
    outcome = gpu_tests.run_side_by_side([names["dies"], names["slow"], names["good"]], 3, 6)
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert set(outcome.failures) == {names["dies"], names["slow"]}


def test_memchecks_last_line_counts_the_errors():
    said = "========= COMPUTE-SANITIZER\nsqueezenet1_0 224 b33\n========= ERROR SUMMARY: 0 errors\n"
    found = gpu_tests.read_sanitizer("memcheck", said)
    assert found["networks, sides and batches"] == ["squeezenet1_0 224 b33"]
    assert found["said"] == "ERROR SUMMARY: 0 errors"
    assert not found["errors"]
    invalid = "========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 1 error\n"
    assert gpu_tests.read_sanitizer("memcheck", invalid)["errors"] == ["Invalid __global__ read of size 4 bytes"]
    assert gpu_tests.read_sanitizer("racecheck", "")["said"] == "nothing"
    assert sys.executable in gpu_tests.PYTEST


def test_a_sanitizer_that_does_not_end_is_killed_with_what_it_started():
    inner = "import time; time.sleep(60)"
    code = f"import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', {inner!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip
    assert gpu_tests.end_in(process, 2).endswith("did not end in time")
    assert process.poll() is not None
