"""The command lines as programs, and one small training run with the real kernels that their tests share."""

import csv
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.helpers.tiny_photos import write_photos

ROOT = Path(__file__).parent.parent.parent

SMALL = ("--model", "cnn", "--image-size", "16", "--batch-size", "4", "--epochs", "3", "--learning-rate", "0.003",
         "--validation", "0.2", "--test", "0.2", "--augment", "light", "--device", "cpu", "--threads", "2")  # fmt: skip


def call(module, *arguments, cache):
    """Call a command in this process, where its imports are done already; its exit code and what it prints."""
    said, told = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, environment(cache)), redirect_stdout(said), redirect_stderr(told):
        try:
            code = import_module(module).main([str(argument) for argument in arguments])
        except SystemExit as end:  # after --help
            code = end.code
    return subprocess.CompletedProcess([module, *arguments], code or 0, said.getvalue(), told.getvalue())


def call_process(module, *arguments, cache, **how):
    """Run a module of ours as a program; its result with text."""
    return subprocess.run([sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT, env=environment(cache),
                          capture_output=True, text=True, timeout=240, check=False, **how)  # fmt: skip


def read_rows(text):
    """The rows of a CSV file with a heading."""
    return list(csv.DictReader(io.StringIO(text)))


def children_of(process):
    """Numbers of the processes that one has started, and that it has not waited for (Linux)."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return sorted(int(pid) for path in found for pid in path.read_text().split())


def environment(cache):
    return {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONIOENCODING": "utf-8", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("data") / "photos with ü", classes=("green", "brown", "grey"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory, photos, cache):
    """The run folder of a finished training, and what the command said as JSON lines."""
    run = tmp_path_factory.mktemp("runs") / "run"
    done = call_process("core.train", "--data", photos, "--out", run, "--json", *SMALL, cache=cache)
    assert done.returncode == 0, done.stderr
    return run, done.stdout
