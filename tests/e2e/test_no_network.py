"""No command or window opens a socket but Unix ones, or the kernel ends its process. No command changes a photo."""

import signal
import subprocess
import sys
import time

import pytest

from tests.helpers.commands import ROOT, SMALL, environment
from tests.helpers.no_network import supported

pytestmark = pytest.mark.skipif(not supported(), reason="the filter is made for Linux on x86-64 and ARM64")

LINGER = 25
"""Seconds that a process stays after an export: onnxruntime's telemetry resolved its host 13 to 20 seconds after the
import."""


@pytest.fixture
def home(tmp_path):
    """A home folder, in which programs may write the program's own cache and nothing else."""
    (tmp_path / "home").mkdir()
    yield tmp_path / "home"
    made = {str(path.relative_to(tmp_path / "home")) for path in (tmp_path / "home").glob(".cache/*")}
    assert made <= {".cache/leafclinic"}, made


def start(home, *arguments):
    """Python with these arguments, behind the filter."""
    command = [sys.executable, "-m", "tests.helpers.no_network", sys.executable, *map(str, arguments)]
    here = {**environment(home / ".cache"), "HOME": str(home), "LEAFCLINIC_HOME": str(home / "window")}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=here, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def run(home, *arguments, wanted=0):
    process = start(home, *arguments)
    out, err = process.communicate(timeout=250)
    assert process.returncode == wanted, f"{arguments}: {process.returncode}\n{out[-2000:]}\n{err[-2000:]}"
    return out


def contents(folder):
    """Names, bytes and times of everything below a folder."""
    return {path: (path.is_file() and path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*")}


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK"])
def test_the_filter_ends_a_process_at_its_first_other_socket(home, family):
    code = f"import socket; socket.socket(socket.AF_UNIX); socket.socket(socket.{family}, socket.SOCK_DGRAM)"
    run(home, "-c", code, wanted=-signal.SIGSYS)


def test_every_command_does_its_work_without_a_socket(home, trained, photos, tmp_path):
    photo, model = next(photos.rglob("*.png")), trained[0] / "best.safetensors"
    before = contents(photos)
    asked, report = [str(model), "--onnx", str(tmp_path / "it.onnx")], tmp_path / "report.html"
    code = f"import time; from core.export import main; assert main({asked}) == 0; time.sleep({LINGER})"
    begun = time.monotonic()
    with start(home, "-c", code) as lingering:
        run(home, "-m", "core.train", "--data", photos, "--out", tmp_path / "run", *SMALL)
        run(home, "-m", "core.evaluate", trained[0], "--data", photos)
        run(home, "-m", "core.diagnose", model, photo, "--examine", "--csv", "--report", report)
        run(home, "-m", "core.diagnose", model, photos, "--out", tmp_path / "many", "--shard", "1/1")
        run(home, "-m", "core.diagnose", "--merge", tmp_path / "many")
        run(home, "-m", "core.adapt", model, "--data", photos, "--out", tmp_path / "a.safetensors", wanted=2)  # refused
        run(home, "-m", "core.review", photos, "--model", model)
        run(home, "-m", "core.export", trained[0], "--onnx", tmp_path / "small.onnx", "--int8", "--data", photos)
        run(home, "-m", "core.lab", "kernels", "--ops", "dense")
        run(home, "-m", "core.doctor")
        out, err = lingering.communicate(timeout=120)
    assert lingering.returncode == 0, out + err
    assert "Checked: onnxruntime" in out
    assert time.monotonic() - begun > LINGER
    assert contents(photos) == before, "the folder of photos is only read"


def test_the_window_trains_and_diagnoses_without_a_socket(home):
    story = "tests/e2e/test_window_endings.py"
    out = run(home, "-m", "pytest", "-q", "-p", "no:cacheprovider", story, "-k", "diagnosed")
    assert "1 passed" in out
