"""A run whose loss does not fall says so while it runs, and what to do; a run that learns does not."""

from math import log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from core.config import RunConfig
from core.training import stall, trainer
from core.training.events import EpochDone, RunEvaluated, Warned
from core.training.run_folder import REPORT
from core.training.stall import WINDOW, StallWatch, guessing_loss
from tests.helpers.runs import only, train

LABELS = np.array([0, 0, 0, 1])


def test_guessing_is_the_classes_entropy_and_is_warned_of_once_until_the_loss_falls():
    natural = -(0.75 * log(0.75) + 0.25 * log(0.25))
    for sampling, weights, wanted in (("natural", "none", natural), ("balanced", "balanced", natural),
                                      ("balanced", "none", log(2)), ("sqrt", "sqrt", log(2))):  # fmt: skip
        assert guessing_loss(LABELS, 2, sampling, weights, 0.0) == pytest.approx(wanted)
    assert guessing_loss(LABELS, 2, "natural", "none", 0.0, np.eye(2)) == pytest.approx(natural), "label by label"
    for weights, smoothed in (("none", (0.7, 0.25, 0.025, 0.025)), ("balanced", (29 / 60, 33 / 60))):
        wanted = -sum(share * log(share / sum(smoothed)) for share in smoothed)
        assert guessing_loss(LABELS, len(smoothed), "natural", weights, 0.1) == pytest.approx(wanted)
    watch = StallWatch(log(4), after=2 * WINDOW)
    told = [step for step in range(1, 4 * WINDOW) if watch.look(step, log(4))]
    assert (told, watch.stalled) == ([2 * WINDOW], True)
    told = [text for step in range(4 * WINDOW, 6 * WINDOW) if (text := watch.look(step, 0.5))]
    assert [text.split(": ")[0] for text in told] == ["The loss is decreasing now"]
    assert not watch.stalled


@pytest.mark.parametrize("loss", [0.1, 0.97 * log(4)])
def test_a_loss_that_falls_is_no_stall(loss):
    watch = StallWatch(log(4), after=0)
    assert not any(watch.look(step, loss) for step in range(1, 3 * WINDOW))


@pytest.mark.usefixtures("reference_plans")
def test_a_run_that_learns_nothing_says_so_in_its_events_and_its_report(tiny, monkeypatch):
    monkeypatch.setattr(stall, "WINDOW", 5)
    config = tiny(epochs=4, learning_rate=1e-8, schedule="constant", warmup=0.0, leaf_tests=False)
    events = train(config)
    told = [event for event in only(events, Warned) if event.urgent]
    assert len(told) == 1
    assert told[0].message.startswith("The loss is not decreasing: after 5 steps it is ")
    assert events.index(told[0]) < events.index(only(events, EpochDone)[-1])
    judged = only(events, RunEvaluated)[0]
    assert (judged.border, [text for text in judged.words if "border" in text]) == (None, []), "leaf_tests"
    assert "The loss is not decreasing" in (Path(config.out) / REPORT).read_text("utf-8")


def test_the_watch_begins_where_the_warm_up_ends(monkeypatch):
    made = []
    monkeypatch.setattr(trainer, "StallWatch", lambda guessing, after: made.append(after))
    setup = SimpleNamespace(config=RunConfig(warmup=0.2, epochs=10),
                            train=SimpleNamespace(labels=LABELS, steps=50, targets=None), classes=("a", "b"))
    trainer.watch_for_stall(setup)
    assert made == [100]
