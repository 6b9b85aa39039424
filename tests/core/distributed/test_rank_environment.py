"""Which rank a process is, from the variables of its launcher; how ranks see that others still run."""

from __future__ import annotations

import os
import sys
import threading
import time
import types

import pytest

from core.communicator import SingleProcess
from core.distributed import rank_environment
from core.errors import ConfigError, DeviceError
from core.laboratory.options import make_parser
from core.train import train

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "40017",
         "SLURM_STEP_NODELIST": "gpu[007-008]"}  # fmt: skip


@pytest.mark.parametrize(("variables", "wanted"), [
    ({}, rank_environment.RankEnvironment()), ({"RANK": "0", "WORLD_SIZE": "1"}, rank_environment.RankEnvironment()),
    (TORCHRUN, rank_environment.RankEnvironment(5, 8, 1, address="gpu1:29501")),
    ({**TORCHRUN, "LEAFCLINIC_RENDEZVOUS": "/m"}, rank_environment.RankEnvironment(5, 8, 1, rendezvous="/m")),
    (SLURM, rank_environment.RankEnvironment(3, 4, 1, address="gpu007:20017")),
    # the script of a Slurm job is no rank of it
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, rank_environment.RankEnvironment()),
])  # fmt: skip
def test_the_place_follows_from_the_launchers_variables(variables, wanted):
    assert rank_environment.find_rank(variables) == wanted


@pytest.mark.parametrize("around", [{}, SLURM])
def test_ranks_of_mpirun_are_those_that_mpi_counts_also_inside_a_slurm_job(monkeypatch, around):
    """There, Slurm's variables count the processes by which mpirun starts the ranks."""
    mpi = types.SimpleNamespace(world=lambda: rank_environment.RankEnvironment(5, 16, 1, mpi=True))
    monkeypatch.setitem(sys.modules, "core.distributed.mpi", mpi)
    assert rank_environment.find_rank({**around, "OMPI_COMM_WORLD_SIZE": "16"}) == mpi.world()


@pytest.mark.parametrize(("variables", "why"), [
    ({**TORCHRUN, "RANK": "8"}, "RANK=8 is no rank among WORLD_SIZE=8"),
    ({"RANK": "1", "WORLD_SIZE": "2"}, "MASTER_PORT are not set"),
    ({**TORCHRUN, "MASTER_PORT": "auto"}, "MASTER_PORT=auto is no number"),
])  # fmt: skip
def test_variables_that_are_wrong_or_contradict_each_other_are_refused(variables, why):
    with pytest.raises(DeviceError, match=why):
        rank_environment.find_rank(variables)


@pytest.mark.parametrize(("nodes", "first"), [
    ("gpu[007-012,020],cpu1", "gpu007"), ("n1", "n1"), ("a,b", "a"), ("rack-2-n[3,5]", "rack-2-n3"),
])  # fmt: skip
def test_the_first_node_of_a_slurm_list(nodes, first):
    assert rank_environment.first_node(nodes) == first


@pytest.mark.parametrize(("visible", "rank", "seen"), [
    (None, 2, "2"), ("4,5,6", 2, "6"), ("0", 2, "0"), ("", 2, ""), ("GPU-ab,GPU-cd", 1, "GPU-cd"),
])  # fmt: skip
def test_a_rank_sees_its_own_gpu_alone(monkeypatch, visible, rank, seen):
    monkeypatch.setattr(os, "environ", {} if visible is None else {rank_environment.VISIBLE: visible})
    rank_environment.choose_gpu(rank_environment.RankEnvironment(rank, 3, rank))
    assert os.environ[rank_environment.VISIBLE] == seen


def test_a_gpu_is_chosen_by_its_number(monkeypatch):
    monkeypatch.setattr(rank_environment, "count_gpu_files", lambda: 2)
    monkeypatch.delenv(rank_environment.VISIBLE, raising=False)
    for installed, reason in ((False, "--gpu 2: There is no NVIDIA driver"), (True, "--gpu 2: there is no such GPU")):
        monkeypatch.setattr(rank_environment, "has_driver", lambda found=installed: found)
        with pytest.raises(DeviceError, match=reason):
            make_parser().parse_args(["explain", "--gpu", "2"])
    monkeypatch.setenv(rank_environment.VISIBLE, "4,7")
    assert (make_parser().parse_args(["explain", "--gpu", "1"]).gpu, os.environ[rank_environment.VISIBLE]) == (1, "7")
    with pytest.raises(ConfigError, match="several processes"):
        train(["--data", "photos", "--gpu", "0", "--gpus", "2"], rank_environment.RankEnvironment())


@pytest.mark.parametrize(
    ("visible", "gpus", "seen"), [(None, 4, "1"), ("2,3", 4, "3"), ("7", 4, "7"), (None, 1, None), ("", 4, "")]
)
def test_processes_of_one_machine_share_its_gpus(monkeypatch, visible, gpus, seen):
    monkeypatch.setattr(os, "environ", {} if visible is None else {rank_environment.VISIBLE: visible})
    monkeypatch.setattr(rank_environment, "count_gpu_files", lambda: gpus)
    for _ in range(2):
        rank_environment.share_gpus(5)
    assert os.environ.get(rank_environment.VISIBLE) == seen


def test_more_ranks_than_gpus_and_cpus_without_mpi_are_refused_and_one_process_chooses_none(monkeypatch):
    monkeypatch.setenv(rank_environment.VISIBLE, "0,1")
    with pytest.raises(DeviceError, match="Rank 2 has no GPU"):
        rank_environment.choose_gpu(rank_environment.RankEnvironment(2, 3, 2))
    with pytest.raises(DeviceError, match="need MPI"):
        rank_environment.connect(rank_environment.RankEnvironment(0, 2, 0, rendezvous="/m"), "cpu")
    monkeypatch.delenv(rank_environment.VISIBLE)
    rank_environment.choose_gpu(rank_environment.RankEnvironment())
    assert rank_environment.VISIBLE not in os.environ
    assert isinstance(rank_environment.connect(rank_environment.RankEnvironment(), "cuda"), SingleProcess)
    assert not {"mpi4py", "nccl"} & set(sys.modules)


def test_a_file_that_is_not_renewed_names_its_rank(tmp_path, monkeypatch):
    ranks = [rank_environment.PresenceFiles(tmp_path, rank, 3) for rank in range(3)]
    assert (ranks[0].absent(15), ranks[0].absent(-1)) == ((), (1, 2))  # which never began
    for rank in ranks:
        rank.renew()
    assert [rank.absent(15) for rank in ranks] == [()] * 3
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 20)
    os.utime(tmp_path / "alive-0", (time.time() - 3600,) * 2)  # renewed after the clock was set back
    os.utime(tmp_path / "alive-2", (time.time() + 3600,) * 2)
    assert [rank.absent(15) for rank in ranks] == [(1,), (), (1,)]


def test_a_heartbeat_signals_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr(rank_environment, "HEARTBEAT_SECONDS", 0.001)
    twice = threading.Semaphore(0)
    heartbeat = rank_environment.Heartbeat(twice.release)
    assert twice.acquire(timeout=10)
    assert twice.acquire(timeout=10)
    heartbeat.stop()
    assert not heartbeat._thread.is_alive()
