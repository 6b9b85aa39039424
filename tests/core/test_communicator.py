"""Waiting for other ranks, and the run of one rank."""

from core import communicator
from core.communicator import SingleProcess


class Clock:
    """Seconds that pass only in sleeps, and 10 µs in each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1e-5
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_one_rank_gathers_the_value_itself_and_a_wait_ends_at_most_1_percent_late(monkeypatch):
    for seconds in (0.0005, 0.005, 0.04, 0.3, 2.0):
        clock = Clock()
        monkeypatch.setattr(communicator, "time", clock)
        ranks = SingleProcess()
        ranks.wait(lambda clock=clock, end=seconds: clock.now >= end)
        assert clock.now <= 1.011 * seconds + 1e-4
    value = {"any": object()}
    assert SingleProcess().gather_values(value) == [value]
