"""How many cores this process may use: fewer than the machine has where a batch system or a container says so."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

PROCESS: Final = Path("/proc/self")


def usable_cores() -> int:
    """1 or more. A thread keeps gradients and buffers of its own: threads beyond the cores
    take memory and make nothing faster."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    # Of 1.5 cores' time two threads take all, one thread only two thirds.
    return cores if quota is None else min(cores, max(1, math.ceil(quota)))


def count_gpu_files(devices: Path = Path("/dev")) -> int:
    """NVIDIA GPUs by their device files, without starting CUDA: on Linux alone, as NCCL."""
    return len([file for file in devices.glob("nvidia*") if file.name.removeprefix("nvidia").isdecimal()])


@functools.cache
def cpu_quota(process: Path = PROCESS) -> float | None:
    """Cores' worth of time that control groups leave this process (``docker run --cpus``, Kubernetes' limits), None
    where there is no limit; the least of its own group's and of those above. Read once, as it takes time.

    Source: cgroups(7), proc_pid_mountinfo(5).
    """
    try:
        groups = (process / "cgroup").read_text()
        mounts = (process / "mountinfo").read_text()
    except (OSError, ValueError):  # another system than Linux
        return None
    quotas = (_read_quota(folder) for folder in _group_folders(groups, mounts))
    return min((quota for quota in quotas if quota is not None), default=None)


def _group_folders(groups: str, mounts: str) -> Iterator[Path]:
    """The folders of this process's CPU groups, version 1 and 2, and of all above them, as far as they are mounted."""
    for kind, controllers, root, place in _group_mounts(mounts):
        for line in groups.splitlines():
            number, names, group = line.split(":", 2)
            ours = number == "0" and not names if kind == "cgroup2" else "cpu" in names.split(",")
            if not ours or (kind == "cgroup" and "cpu" not in controllers):
                continue
            inner = PurePosixPath(group)
            below = inner.relative_to(root) if inner.is_relative_to(root) else PurePosixPath()
            yield place / below
            yield from (place / above for above in below.parents)


def _group_mounts(mounts: str) -> Iterator[tuple[str, list[str], str, Path]]:
    """(type, controllers, the group that is mounted, where) of every mounted hierarchy of control groups."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) > 4 and len(after) > 2 and after[0] in ("cgroup", "cgroup2"):
            yield after[0], after[2].split(","), before[3], Path(before[4])


def _read_quota(folder: Path) -> float | None:
    """Of one group: ``cpu.max`` holds "150000 100000" or "max 100000" (microseconds in each period); version 1 has a
    file for either number, -1 for no limit."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text() for name in names).split()
            if quota != "max" and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
        except (OSError, ValueError):
            continue
    return None
