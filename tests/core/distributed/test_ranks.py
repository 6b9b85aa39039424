"""Three ranks on the CPU, started by MPI, compute what one process computes, and resume with the same bits."""

import json

import numpy as np
import pytest

from tests.helpers.mpi import MPIRUN, start
from tests.helpers.tiny_photos import write_photos

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="Open MPI is not installed")
RANKS = 3


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("ranks")
    photos = write_photos(out / "photos", classes=("green", "brown", "grey"), each=16)
    with start(RANKS, "-m", "tests.helpers.ranks", photos, out, cache=out / "home") as process:
        said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, said[-2000:] + errors[-4000:]
    return json.loads((out / "found.json").read_text("utf-8"))


def test_contents_of_any_length_reach_every_rank(found):
    assert found["gathered"] == [(bytes([rank]) * (3 * rank)).hex() for rank in range(RANKS)]
    assert (found["broadcast"], found["nothing"]) == ("from 0", "")


def test_the_mean_has_the_same_bits_on_every_rank_and_ends_where_it_should(found):
    means = [np.frombuffer(bytes.fromhex(text), np.float32) for text in found["mean"]]
    for rank, mean in enumerate(means):
        assert mean[:5].tobytes() == means[0][:5].tobytes()
        assert mean[:5] == pytest.approx(RANKS)
        assert list(mean[5:]) == [2 * rank + 1] * 2  # behind the block


def test_uneven_shares_and_synchronized_batch_norm_give_the_step_of_the_whole_batch(found):
    assert max(found["uneven"]) < 1e-6  # also of ranks without photos
    assert max(found["synchronized"]) < 1e-4  # float32 rounding of three steps


def test_ranks_complete_a_model_as_one_process_does(found):
    completed = found["completed"]
    assert completed["sections"][0] == completed["sections"][1]
    assert completed["temperatures"][0] == completed["temperatures"][1]
    assert completed["extra"] == 0


def test_ranks_train_as_one_process_that_accumulates(found):
    assert found["difference"] < 1e-4
    shared, alone = found["losses"]
    assert shared == pytest.approx(alone, rel=1e-4)
    assert found["validated"][0] == [pytest.approx(figures, rel=1e-3) for figures in found["validated"][1]]
    assert found["tested"][0] == found["tested"][1]
    assert found["timed"] == list(range(2, 21, 2)), "also between the agreements of the ranks"


def test_a_run_that_any_rank_stopped_resumes_with_the_same_bits(found):
    assert found["stopped"] == ["stopped"]
    assert found["resumed equal"]
    assert found["resumed losses"] == found["losses"][0]


def test_another_number_of_ranks_is_told_on_resume_and_ranks_with_other_settings_are_refused_by_name(found):
    assert any(f"ranks 1 instead of {RANKS}" in text for text in found["changed"]), found["changed"]
    assert found["refused"].startswith(f"Rank {RANKS - 1} has another value of 'seed' than rank 0: 5 ")


BEGIN = """
import os, signal, time
import core.communicator as communicator
from core.distributed.launch import end_rank
from core.distributed.rank_environment import connect, find_rank
ranks = connect(find_rank(), "cpu")
"""
END = """
try:
    ranks.barrier()
except communicator.RankLost as error:
    print(error.ranks, error, flush=True)
    time.sleep(communicator.ANSWER_SECONDS + 3)  # a heartbeat that was on its way delays another rank so long
    end_rank(lambda: error.exit_code)
"""

SILENT = """
communicator.ANSWER_SECONDS = 1.0
ranks.limited = True
ranks.barrier()
if ranks.rank == 1:
    time.sleep(60)
"""

PREPARING = """
communicator.ANSWER_SECONDS = 3.0
ranks.barrier()
if ranks.rank == 1:
    time.sleep(6)  # works, and answers nothing
ranks.barrier()
print("prepared", flush=True)
if ranks.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_rank_that_fails_while_others_start_mpi_ends_all(tmp_path):
    now = str(tmp_path / "now")
    failing = (f"if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n  while not os.path.exists({now!r}): pass\n"
               f"  time.sleep(0.02); os._exit(end_rank(lambda: 1 / 0))\nopen({now!r}, 'w').close()\nranks = ")
    with start(2, "-c", failing.join(BEGIN.split("ranks = ")), cache=tmp_path) as process:
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.count("ZeroDivisionError")) == (1, 1)


@pytest.mark.parametrize(("code", "prepared"), [(SILENT, 0), (PREPARING, 3)])
def test_a_rank_that_does_not_answer_is_named_and_all_end(tmp_path, code, prepared):
    """Before the training, a rank that works is waited for, and one that hangs is named."""
    with start(3, "-c", BEGIN + code + END, cache=tmp_path) as process:
        said, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert said.count("prepared") == prepared, said + errors
    assert said.count("(1,) Rank 1 did not answer") == 2, said + errors
