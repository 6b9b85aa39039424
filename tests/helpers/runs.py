"""Whole runs for tests: all their events, and their weights compared bit by bit."""

from pathlib import Path

from core.training.checkpoint import LAST, read_checkpoint
from core.training.commands import Commands
from core.training.events import StepDone
from core.training.trainer import Trainer


def train(config, *, stop_after=None, pick=StepDone, **how):
    """All events of a run; it is told to stop after `stop_after` events of the kind `pick`."""
    commands, events = Commands(), []
    for event in Trainer(config, **how).run(commands):
        events.append(event)
        if stop_after is not None and sum(isinstance(e, pick) for e in events) == stop_after:
            commands.stop()
    return events


def only(events, kind):
    return [event for event in events if isinstance(event, kind)]


def last_weights(config):
    return read_checkpoint(Path(config.out) / LAST)


def same_bits(one, other):
    assert one.state.step == other.state.step
    for part in ("weights", "optimizer"):
        first, second = getattr(one, part), getattr(other, part)
        assert first.keys() == second.keys()
        for name in first:
            assert first[name].tobytes() == second[name].tobytes(), name
