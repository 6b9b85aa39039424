"""Which rank a process is, from the variables of MPI, torchrun, Slurm and the launcher."""

import sys

import pytest

from core.communicator import SingleProcess
from core.distributed import place
from core.distributed.place import Place, choose_gpu, connect, find_place, first_node
from core.errors import DeviceError

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "gpu1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "40017",
         "SLURM_STEP_NODELIST": "gpu[007-008]"}  # fmt: skip


@pytest.mark.parametrize(("variables", "wanted"), [
    ({}, Place()),
    ({"RANK": "0", "WORLD_SIZE": "1"}, Place()),
    (TORCHRUN, Place(5, 8, 1, address="gpu1:29501")),
    ({**TORCHRUN, "LEAFCLINIC_MEETING": "/m"}, Place(5, 8, 1, meeting="/m")),
    (SLURM, Place(3, 4, 1, address="gpu007:20017")),
    # the script of a Slurm job is no rank of it
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, Place()),
])  # fmt: skip
def test_the_place_follows_from_the_launchers_variables(variables, wanted):
    assert find_place(variables) == wanted


def test_variables_that_contradict_each_other_are_refused():
    with pytest.raises(DeviceError, match="RANK=8 is no rank among WORLD_SIZE=8"):
        find_place({**TORCHRUN, "RANK": "8"})
    with pytest.raises(DeviceError, match="where they meet"):
        find_place({"RANK": "1", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(("nodes", "first"), [
    ("gpu[007-012,020],cpu1", "gpu007"), ("n1", "n1"), ("a,b", "a"), ("rack-2-n[3,5]", "rack-2-n3"),
])  # fmt: skip
def test_the_first_node_of_a_slurm_list(nodes, first):
    assert first_node(nodes) == first


@pytest.mark.parametrize(
    ("visible", "rank", "seen"), [(None, 2, "2"), ("4,5,6", 2, "6"), ("0", 2, "0"), ("GPU-ab,GPU-cd", 1, "GPU-cd")]
)
def test_a_rank_sees_its_own_gpu_alone(monkeypatch, visible, rank, seen):
    monkeypatch.delenv(place.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(place.VISIBLE, visible)
    choose_gpu(Place(rank, 3, rank))
    assert place.os.environ[place.VISIBLE] == seen


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv(place.VISIBLE, "0,1")
    with pytest.raises(DeviceError, match="Rank 2 has no GPU"):
        choose_gpu(Place(2, 3, 2))


def test_one_process_needs_no_package_and_chooses_no_gpu(monkeypatch):
    monkeypatch.delenv(place.VISIBLE, raising=False)
    choose_gpu(Place())
    assert place.VISIBLE not in place.os.environ
    assert isinstance(connect(Place(), "cuda"), SingleProcess)
    assert not {"mpi4py", "nccl"} & set(sys.modules)


def test_cpus_without_mpi_are_refused():
    with pytest.raises(DeviceError, match="need MPI"):
        connect(Place(0, 2, 0, meeting="/m"), "cpu")
