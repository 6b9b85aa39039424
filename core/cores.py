"""The number of cores that this process may use, which a batch system or a container may limit."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

PROCESS: Final = Path("/proc/self")


def usable_cores() -> int:
    """Return at least 1. Each thread has its own gradients and buffers, so more threads than cores only use memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    # With a quota of 1.5 cores two threads use all of it, one thread only two thirds.
    return cores if quota is None else min(cores, max(1, math.ceil(quota)))


def count_gpu_files(devices: Path = Path("/dev")) -> int:
    """Return the number of NVIDIA GPUs by their device files, without starting CUDA; Linux only, like NCCL."""
    return len([file for file in devices.glob("nvidia*") if file.name.removeprefix("nvidia").isdecimal()])


@functools.cache
def cpu_quota(process: Path = PROCESS) -> float | None:
    """Return the CPU quota of this process in cores (``docker run --cpus``, Kubernetes), or None without a limit.

    It is the smallest quota of its control group and of those above, and is read once. Source: cgroups(7),
    proc_pid_mountinfo(5).
    """
    try:
        groups = (process / "cgroup").read_text()
        mounts = (process / "mountinfo").read_text()
    except (OSError, ValueError):  # another system than Linux
        return None
    quotas = (_read_quota(folder) for folder in _group_folders(groups, mounts))
    return min((quota for quota in quotas if quota is not None), default=None)


def _group_folders(groups: str, mounts: str) -> Iterator[Path]:
    """Yield the mounted folders of this process's CPU groups, version 1 and 2, and of all groups above them."""
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
    """Yield (type, controllers, mounted group, mount point) of every mounted hierarchy of control groups."""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) > 4 and len(after) > 2 and after[0] in ("cgroup", "cgroup2"):
            yield after[0], after[2].split(","), before[3], Path(before[4])


def _read_quota(folder: Path) -> float | None:
    """Read the quota of a group: ``cpu.max`` is "150000 100000" or "max 100000" (microseconds per period).

    Version 1 has a file for each number, with -1 for no limit.
    """
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            quota, period = " ".join((folder / name).read_text() for name in names).split()
            if quota != "max" and int(quota) > 0 and int(period) > 0:
                return int(quota) / int(period)
    return None
