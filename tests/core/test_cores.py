"""Cores that a container leaves a process: read from files as the kernel writes them."""

import os

import pytest

from core import cores
from core.cores import count_gpu_files, cpu_quota, usable_cores

V1 = "28 24 0:24 {root} {place} rw,nosuid - cgroup cgroup rw,{controllers}\n"
V2 = "25 24 0:22 {root} {place} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Writes a process's two files, and the files of its groups; places of mounts are relative."""
    monkeypatch.chdir(tmp_path)  # the kernel writes blanks in places as octal numbers

    def write(groups, mounts, **files):
        cpu_quota.cache_clear()
        (tmp_path / "cgroup").write_text(groups)
        (tmp_path / "mountinfo").write_text(OTHER + mounts)
        for name, text in files.items():
            file = tmp_path / name.replace("__", "/").replace("_max", ".max").replace("_cfs", ".cfs")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    yield write
    cpu_quota.cache_clear()


def test_a_container_of_version_2_says_how_much_it_gets_and_the_least_of_the_groups_above_it_counts(process):
    mounts = V2.format(root="/", place="g")
    assert cpu_quota(process("0::/\n", mounts, g__cpu_max="150000 100000\n")) == 1.5
    assert cpu_quota(process("0::/\n", mounts, g__cpu_max="max 100000\n")) is None
    files = {"g__pod__box__cpu_max": "max 100000", "g__pod__cpu_max": "250000 100000", "g__cpu_max": "400000 100000"}
    assert cpu_quota(process("0::/pod/box\n", mounts, **files)) == 2.5


def test_a_container_of_version_1_sees_its_group_where_it_is_mounted_also_beside_version_2(process, tmp_path):
    mounts = V1.format(root="/docker/abc", place="memory", controllers="memory")
    mounts += V1.format(root="/docker/abc", place="cpu,cpuacct", controllers="cpu,cpuacct")
    groups = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n"
    for quota, wanted in (("300000", 3.0), ("-1", None), ("50000", 0.5)):
        (tmp_path / "cpu,cpuacct").mkdir(exist_ok=True)
        (tmp_path / "cpu,cpuacct" / "cpu.cfs_quota_us").write_text(quota + "\n")
        (tmp_path / "cpu,cpuacct" / "cpu.cfs_period_us").write_text("100000\n")
        assert cpu_quota(process(groups, mounts)) == wanted
    mounts = V1.format(root="/", place="one", controllers="cpu")
    mounts += V2.format(root="/", place="unified")
    files = {"one__job__cpu_cfs_quota_us": "200000", "one__job__cpu_cfs_period_us": "100000"}
    assert cpu_quota(process("1:cpu:/job\n0::/\n", mounts, **files)) == 2.0


@pytest.mark.parametrize("text", ["", "\n", "a b\n", "100000\n", "100000 0\n", "1 2 3\n", "-5 100000\n"])
def test_files_that_say_nothing_sensible_limit_nothing(process, text):
    mounts = V2.format(root="/", place="g")
    assert cpu_quota(process("0::/\n", mounts, g__cpu_max=text)) is None


def test_a_group_that_is_not_mounted_and_another_system_limit_nothing(process, tmp_path):
    assert cpu_quota(process("0::/elsewhere\n", V2.format(root="/", place="none"))) is None
    assert cpu_quota(process("0::/\n", "")) is None
    assert cpu_quota(tmp_path / "no such folder") is None


@pytest.mark.parametrize(("quota", "wanted"), [(0.2, 1), (1.0, 1), (1.5, 2), (1000.0, None), (None, None)])
def test_threads_follow_the_quota_and_never_go_beyond_the_cores(monkeypatch, quota, wanted):
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    assert usable_cores() == (wanted or 6)


def test_gpus_are_counted_by_their_device_files(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "sda"):
        (tmp_path / name).touch()
    assert count_gpu_files(tmp_path) == 3
