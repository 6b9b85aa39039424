"""Signals that a process runs."""

from __future__ import annotations

import os
import threading
import time

from core.distributed import rank_environment
from core.distributed.rank_environment import Heartbeat, PresenceFiles


def test_a_file_that_is_not_renewed_names_its_rank(tmp_path, monkeypatch):
    ranks = [PresenceFiles(tmp_path, rank, 3) for rank in range(3)]
    for rank in ranks:
        rank.renew()
    assert [rank.absent(15) for rank in ranks] == [()] * 3
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 20)
    os.utime(tmp_path / "alive-0", (time.time() - 3600,) * 2)  # renewed after the clock was set back
    os.utime(tmp_path / "alive-2", (time.time() + 3600,) * 2)
    assert [rank.absent(15) for rank in ranks] == [(1,), (), (1,)]


def test_a_rank_that_never_began_is_absent_after_the_limit(tmp_path):
    files = PresenceFiles(tmp_path, 0, 2)
    assert (files.absent(15), files.absent(-1)) == ((), (1,))


def test_a_heartbeat_signals_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr(rank_environment, "HEARTBEAT_SECONDS", 0.001)
    twice = threading.Semaphore(0)
    heartbeat = Heartbeat(twice.release)
    assert twice.acquire(timeout=10)
    assert twice.acquire(timeout=10)
    heartbeat.stop()
    assert not heartbeat._thread.is_alive()
