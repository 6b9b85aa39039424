"""The state of a run by hand, and checkpoints that come back whole, the one before beside them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.device import StepResult
from core.diagnosis.metrics import Metrics
from core.training.checkpoint import LAST, PREVIOUS, Checkpoint, RunState, read_checkpoint, save_checkpoint
from core.training.conditions import Conditions


def test_a_state_sums_its_epoch_and_keeps_the_best():
    state = RunState().after_step(StepResult(2.0, 1, 2, 1.0), 0.5).after_step(StepResult(1.0, 3, 4, 1.0), 0.25)
    assert state == RunState(2, 0, 2, 8.0, 4, 6, 0.75, 0.75)
    assert (state.train_loss, state.train_accuracy) == (8 / 6, 4 / 6)
    assert (RunState().train_loss, RunState().train_accuracy) == (0.0, 0.0)
    figures = Metrics(("a", "b"), ((1, 1), (0, 0)), 2.0)
    state = state.after_epoch(figures, 2.0)
    assert state == RunState(2, epoch=1, seconds=2.75, best_epoch=0, best_score=0.5, best_accuracy=0.5, best_loss=2.0)
    for loss, better in ((1.999, False), (1.98, True)):
        after = state.after_epoch(replace(figures, loss=loss), 0.0)
        assert (after.best_epoch, after.stale_epochs) == ((1, 0) if better else (0, 1)), "clearly lower, or not"


@pytest.mark.parametrize("links", [True, False])
def test_a_checkpoint_comes_back_whole_and_the_one_before_is_kept_also_without_hard_links(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", lambda *_: (_ for _ in ()).throw(OSError("FAT has none")))
    conditions = Conditions("1.2", "0.60", "cpu", "avx2", 3, ranks=2)
    first = Checkpoint({"epochs": 3}, ("a",), "photos", conditions, RunState(step=1), {"log": 7},
                       {"w": np.ones(2)}, {"step": np.array(1)}, ("teacher",), "start")  # fmt: skip
    save_checkpoint(tmp_path, first)
    save_checkpoint(tmp_path, replace(first, state=RunState(step=2), teachers=()))
    for name, step, teachers in ((PREVIOUS, 1, ("teacher",)), (LAST, 2, ())):
        read = read_checkpoint(tmp_path / name)
        assert replace(read, weights={}, optimizer={}) == replace(
            first, state=RunState(step=step), teachers=teachers, weights={}, optimizer={})  # fmt: skip
        assert (read.weights["w"].tolist(), read.optimizer["step"]) == ([1, 1], 1)
