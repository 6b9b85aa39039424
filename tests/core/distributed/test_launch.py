"""The launcher of one machine's ranks: all end when one fails, and one sentence names it. No GPU is needed."""

import os
import subprocess
import sys
import time

import pytest

from core.distributed import launch
from core.errors import EXIT_LOST, EXIT_STOPPED, LeafClinicError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NCCL is made for Linux")

PROGRAM = """
import os, sys, time
rank = int(os.environ["RANK"])
assert os.environ["WORLD_SIZE"] == "3" and os.environ["LOCAL_RANK"] == str(rank)
assert os.path.isdir(os.environ["LEAFCLINIC_RENDEZVOUS"])
"""


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(launch, "GRACE_SECONDS", 1.0)
    return lambda code: launch.run_ranks([sys.executable, "-c", PROGRAM + code], 3)


@pytest.mark.parametrize("code", [0, EXIT_STOPPED])
def test_ranks_that_end_well_give_their_exit_code(run, code):
    assert run(f"time.sleep(0.3 if rank == 0 else 0); sys.exit({code})") == code


def test_only_rank_0_writes_to_the_output_of_the_launcher(capfd, run):
    run("print('output of', rank); print('error of', rank, file=sys.stderr)")
    out, err = capfd.readouterr()
    assert (out, err) == ("output of 0\n", "error of 0\n")


@pytest.mark.parametrize(("code", "why"), [
    ("os.kill(os.getpid(), 9) if rank == 2 else time.sleep(60)", r"2 was ended by signal 9 \(SIGKILL\)\. .*--resume"),
    (f"time.sleep(60) if rank == 1 else os._exit({EXIT_LOST})", r"1 did not answer\."),
    ("if rank == 1: sys.exit('Rank 1: The disk is full.')\ntime.sleep(60)", r"1: The disk is full\. Continue"),
])  # fmt: skip
def test_a_rank_that_is_killed_hangs_or_fails_ends_all_and_is_named(run, code, why):
    begin = time.monotonic()
    with pytest.raises(LeafClinicError, match=f"^Rank {why}"):
        run(code)
    assert time.monotonic() - begin < 30


def test_rank_0_says_itself_what_is_wrong_for_all(capfd, run):
    assert run("if rank == 0: print('There is no photo.', file=sys.stderr)\nsys.exit(2)") == 2
    assert capfd.readouterr().err == "There is no photo.\n"


def test_ranks_end_with_their_launcher(tmp_path):
    rank = f"import os, time; open({str(tmp_path)!r} + '/' + os.environ['RANK'], 'w').write(str(os.getpid()))"
    command = [sys.executable, "-c", f"{rank}; time.sleep(60)"]
    code = f"from core.distributed.launch import run_ranks; run_ranks({command!r}, 2)"
    with subprocess.Popen([sys.executable, "-c", code]) as launcher:
        until = time.monotonic() + 30
        while len([path for path in tmp_path.iterdir() if path.read_text()]) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        ranks = [int(path.read_text()) for path in tmp_path.iterdir()]
        launcher.kill()
    assert len(ranks) == 2
    while any(is_running(pid) for pid in ranks) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in ranks)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("size", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_a_rank_that_failed_ends_at_once_whatever_its_gpu_does(size):
    code = ("import atexit; atexit.register(print, 'teardown'); from core.distributed.launch import end_rank; "
            "end_rank(lambda: 1 / 0)")  # fmt: skip
    here = {**os.environ, size: "2"}
    done = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert done.stdout == ""
