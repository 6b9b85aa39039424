"""A plugin of pytest that writes each test's begin and end as a line at once: what is killed leaves its results.

    LEAFCLINIC_TEST_LOG=FILE python -m pytest -p benchmarks.gpu_test_log -n 14 ...

It gives each process of pytest-xdist a share of the cores, at least `CORES`. A test compiles its kernels in as many
processes as it has cores; fourteen times sixteen such processes spend most of their time on imports.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.cores import usable_cores

FILE = "LEAFCLINIC_TEST_LOG"
CORES = 3
"""Fewest cores of a process."""


@dataclass
class Outcome:
    """How many tests did what; `failures` by name with the reason, `slowest` by name in seconds.

    `seconds` is from the first test's begin to the last line; `unfinished` have begun only.
    """

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)


def pytest_configure(config: pytest.Config) -> None:
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if number:
        use_share_of_cores(int(number), max(CORES, usable_cores() // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each process of `--dist worksteal`, which begins with a run of neighbours, gets tests of every file."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = [item for first in range(count) for item in items[first::count]]


def use_share_of_cores(number: int, share: int) -> None:
    """Limit this process to so many of its cores, the next process to the next ones."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[(share * number + i) % len(cores)] for i in range(share)})


def pytest_runtest_logstart(nodeid: str) -> None:
    _write({"name": nodeid, "begin": True})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    reason = str(getattr(report.longrepr, "reprcrash", report.longrepr) or "") if report.failed else ""
    _write({"name": report.nodeid, "outcome": report.outcome, "seconds": report.duration, "reason": reason[:300]})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:  # a file that cannot be imported
        reason = str(report.longrepr)[-300:]
        _write({"name": report.nodeid, "outcome": "failed", "seconds": 0.0, "reason": reason})


def pytest_runtest_logfinish(nodeid: str) -> None:
    _write({"name": nodeid, "end": True})


def _write(event: dict[str, object]) -> None:
    """Only in the process that has the results of all."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**event, "time": time.time()}) + "\n")


def read_log(lines: Iterable[str]) -> Outcome:
    """What the lines so far say; the last line may be half written."""
    found, taken, skipped, ended, times = Outcome(), {}, set(), set(), []
    for line in lines:
        if not line.endswith("\n"):
            break
        event = json.loads(line)
        name = event["name"]
        times.append(event["time"])
        taken[name] = round(taken.get(name, 0.0) + event.get("seconds", 0.0), 1)
        if event.get("outcome") == "failed":
            found.failures.setdefault(name, " ".join(event["reason"].split()))
        if event.get("outcome") == "skipped":
            skipped.add(name)
        if "end" in event or event.get("outcome") == "failed":
            ended.add(name)
    found.failed, found.skipped = len(found.failures), len(skipped)
    found.passed = len(ended - skipped - set(found.failures))
    found.unfinished = sorted(set(taken) - ended)
    found.slowest = dict(sorted(taken.items(), key=lambda pair: -pair[1])[:10])
    found.seconds = round(max(times) - min(times), 1) if times else 0.0
    return found
