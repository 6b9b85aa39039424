"""The state of a run besides weights and optimizer state: everything else that the next step depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from core.device import StepResult
from core.diagnosis.metrics import Metrics

CLEARLY: Final = 0.999
"""A loss that falls by less than 0.1 % is not an improvement, else patience would never end."""


@final
@dataclass(frozen=True, slots=True)
class RunState:
    """Counts since the start, sums of the current epoch, and the best epoch so far.

    There is no generator state: shuffling, augmentation and dropout are functions of seed,
    epoch, step and photo. An epoch whose steps are all done but which is not validated yet has
    `step_in_epoch` at its end.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    photos: int = 0
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    best_epoch: int = -1
    best_score: float = -1.0
    best_accuracy: float = -1.0
    best_loss: float = float("inf")

    def after_step(self, result: StepResult, seconds: float) -> RunState:
        return replace(
            self,
            step=self.step + 1,
            step_in_epoch=self.step_in_epoch + 1,
            loss_sum=self.loss_sum + result.loss * result.photos,
            correct=self.correct + result.correct,
            photos=self.photos + result.photos,
            epoch_seconds=self.epoch_seconds + seconds,
            seconds=self.seconds + seconds,
        )

    def is_better(self, figures: Metrics) -> bool:
        """Whether the score is higher, or equal with a clearly lower loss."""
        if figures.score == self.best_score:
            return figures.loss < CLEARLY * self.best_loss
        return figures.score > self.best_score

    def after_epoch(self, figures: Metrics, seconds: float) -> RunState:
        """The start of the next epoch, with the best epoch updated."""
        state = self
        if self.is_better(figures):
            state = replace(self, best_epoch=self.epoch, best_score=figures.score, best_accuracy=figures.accuracy,
                            best_loss=figures.loss)  # fmt: skip
        return replace(state.after_unvalidated_epoch(), seconds=self.seconds + seconds)

    def after_unvalidated_epoch(self) -> RunState:
        """The start of the next epoch after one without validation."""
        return replace(
            self, epoch=self.epoch + 1, step_in_epoch=0, loss_sum=0.0, correct=0, photos=0, epoch_seconds=0.0
        )

    @property
    def train_loss(self) -> float:
        return self.loss_sum / max(self.photos, 1)

    @property
    def train_accuracy(self) -> float:
        return self.correct / max(self.photos, 1)

    @property
    def stale_epochs(self) -> int:
        """Finished epochs since the best one."""
        return self.epoch - 1 - self.best_epoch
