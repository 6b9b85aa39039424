"""The training loop: it yields events, and can be stopped, paused and resumed exactly.

    set up -> for every epoch: steps, validation, checkpoint -> test of the best weights, report

A resumed run continues with the same bits: weights, optimizer state and position come from the
checkpoint, everything else is a function of seed, epoch, step and photo.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from core.config import RunConfig, to_dict
from core.data.dataset import LEAKAGE, TRAIN, VALIDATION, Cancelled
from core.device import PhotoBatch, StepResult
from core.diagnosis.metrics import Metrics, compute_metrics
from core.diagnosis.model_identity import BEST, default_name
from core.distributed.rank_environment import RankEnvironment
from core.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_STOPPED, LeafClinicError, StorageError
from core.ops.contract import Array
from core.optim.learning_rate import learning_rate
from core.storage import create_unused, new_run_folder, unused
from core.training import events
from core.training.agreement import Agreement, check_weights, share_state
from core.training.checkpoint import LAST, Checkpoint, RunState, load_checkpoint, save_checkpoint
from core.training.commands import Commands
from core.training.conditions import keep_conditions
from core.training.finish import assist_finish, finish_run, save_best
from core.training.kernel_timing import KernelSampling
from core.training.run_evaluation import RunEvaluation
from core.training.run_folder import REPORT, RunFolder, check_earlier_run, check_new_run
from core.training.setup import ALONE, Setup, set_up
from core.training.stall import StallWatch, guessing_loss
from core.training.start import Started, start_run
from core.training.step import cut_batch, diverged, find_broken_layer, pair_with_next, start_step
from core.training.validation import evaluation_weights


class Trainer:
    """One run, new or resumed.

    config: valid settings (`core.config.problems` is empty); resume: continue the run in its folder; overwrite: replace
    an earlier run there; profiled: time the kernels of the second step, however short the run is; environment: the rank
    of this process; only rank 0 writes.
    """

    def __init__(
        self, config: RunConfig, *, resume: bool = False, overwrite: bool = False, profiled: bool = False,
        environment: RankEnvironment = ALONE,
    ) -> None:  # fmt: skip
        out = config.out or str(new_run_folder(Path("runs"), config.start, config.model))
        self.config = replace(config, out=out, name=config.name or default_name(config.data))
        self._resume, self._overwrite, self._profiled, self._environment = resume, overwrite, profiled, environment
        self._path, self._named = Path(out), bool(config.out)
        self._started = False

    @property
    def resumable(self) -> bool:
        """Whether there is a run that can be resumed: an earlier one, or this one after its first step."""
        return self._resume or self._started

    @property
    def stopped_code(self) -> int:
        """The exit code of the run if the user stops it now."""
        return EXIT_STOPPED if self.resumable else EXIT_INTERRUPTED

    def follow(self, commands: Commands, show: Callable[[events.Event], None]) -> int:
        """Run to the end, show every event, and return the exit code. Raises LeafClinicError."""
        code = EXIT_DONE
        for event in self.run(commands):
            show(event)
            if isinstance(event, events.RunFinished) and event.reason == "stopped":
                code = self.stopped_code
        return code

    def check_start(self) -> RunConfig:
        """Check the run folder (on rank 0); returns the settings, with the recorded conditions of a resumed run."""
        if self._environment.rank == 0 and self._resume:
            check_earlier_run(self._path)
        elif self._environment.rank == 0:
            check_new_run(self._path if self._named else unused(self._path), self.config, self._overwrite)
        if not self._resume:
            return self.config
        before, _ = load_checkpoint(self._path)
        return keep_conditions(self.config, None if before is None else before.conditions)

    def run(self, commands: Commands | None = None) -> Iterator[events.Event]:
        """Yield events until the run has ended. Raises LeafClinicError after logging it.

        When stopped by `commands`, it saves and ends with RunFinished; before the first step there is nothing to save.
        """
        commands = commands or Commands()
        try:
            setup = yield from set_up(self.check_start(), commands, self._environment)
        except Cancelled:
            yield events.RunFinished("stopped", 0, -1, 0.0, None, "", "", 0.0)
            return
        folder: RunFolder | None = None
        begun = False
        try:
            if self._environment.rank == 0 and not self._named:  # another run may have started in the same second
                self._path = create_unused(self._path)
                setup = replace(setup, config=replace(setup.config, out=str(self._path)))
            started = start_run(setup, self._path, self._resume, self._overwrite)
            folder, self._started = started.folder, True
            for event in _Run(setup, started, self._path, commands, self._profiled).run():
                if folder is not None and not isinstance(event, events.Progress):
                    folder.log(event)
                begun |= isinstance(event, events.StepDone)
                yield event
            setup.communicator.close()
        except LeafClinicError as error:
            if folder is not None and isinstance(error, StorageError) and not (self._resume or begun):
                self._started = False
                folder.discard()
            elif folder is not None:
                with suppress(StorageError):
                    folder.log(events.RunFailed(str(error), traceback.format_exc(), error.exit_code))
            raise
        finally:
            if folder is not None:
                folder.release()
            setup.close()


class _RunningStep(NamedTuple):
    batch: PhotoBatch
    rate: float
    wait: Callable[[], StepResult]


class _Run:
    def __init__(self, setup: Setup, started: Started, path: Path, commands: Commands, profiled: bool) -> None:
        self.setup, self.folder, self.path, self.commands = setup, started.folder, path, commands
        self.state = started.state
        self._notes = (*setup.warnings, *started.warnings)
        self._config = setup.config
        self._per_epoch = setup.train.steps
        self._ranks = setup.communicator
        self._agreement = Agreement(self._ranks, commands, self._config.checkpoint_seconds)
        self._agreement.seconds = self.state.seconds
        self._sampling = KernelSampling(self._config.time_every, profiled)
        self._stall = watch_for_stall(setup)
        self._running: deque[_RunningStep] = deque()
        # A step starts before the result of the one before is read, unless it takes parts or kernels are timed often.
        plan, whole = setup.plan, setup.train.batch <= setup.plan.batch * setup.plan.ranks
        self._ahead = int(plan.asynchronous and whole and not self._config.time_every)
        self._last: events.StepDone | None = None
        self._timed: tuple[int, PhotoBatch] | None = None
        """The step whose kernels will be timed, and its batch."""

    def run(self) -> Generator[events.Event, None, None]:
        yield self._started()
        for note in self._notes:
            yield events.Warned(note, kind="leakage" if note.startswith(LEAKAGE) else "")
        self._ranks.limited = True
        reason = yield from self._epochs()
        self._ranks.limited = False  # the first rank alone writes
        if reason == "stopped":
            yield from self._save()
            best = str(self.path / BEST) if self.state.best_epoch >= 0 else ""
            yield self._finished(reason, best)
            return
        self.setup.close_training()
        if self.folder is None:
            yield from assist_finish(self.setup)
            yield self._finished(reason, "")
        else:
            evaluation = yield from finish_run(self.setup, self.folder, self.state)
            self.setup.validator.dismiss()
            yield self._finished(reason, str(self.path / BEST), str(self.path / REPORT), evaluation)

    def _epochs(self) -> Generator[events.Event, None, str]:
        """Run the remaining epochs; returns "completed", "early" or "stopped"."""
        config = self._config
        while self.state.epoch < config.epochs and (self.state.step_in_epoch or not self._is_late()):
            validated = self.state.epoch > 0 and self.state.epoch % config.validate_every == 0
            if config.patience and validated and self.state.stale_epochs >= config.patience:
                return "early"
            if not (self._is_late() or (yield from self._steps())):
                return "stopped"
            if not self._is_validation_due():
                self.state = self.state.after_unvalidated_epoch()
                continue
            if not (yield from self._validate()):
                return "stopped"
        return "completed"

    def _validate(self) -> Generator[events.Event, None, bool]:
        """Validate and end the epoch; returns False if the run was stopped."""
        begin, validator = time.monotonic(), self.setup.validator
        check_weights(self._ranks, self.setup.plan)
        if self.folder is None:
            validator.assist(self.setup.evaluated)
        else:
            weights = evaluation_weights(self.setup.plan, self.setup.train, self.state.epoch)
            loader = self.setup.validation
            logits = yield from validator.predict("validation", weights, loader, self.commands)
            validator.dismiss()
            if logits is None:
                return False
            labels = self.setup.photos.true_labels(self.setup.photos.rows(VALIDATION))
            figures = compute_metrics(logits, labels, self.setup.classes)
            yield from self._end_epoch(self.folder, weights, figures, time.monotonic() - begin)
        self.state = share_state(self._ranks, self.state)
        self._agreement.seconds = self.state.seconds
        return True

    def _steps(self) -> Generator[events.Event, None, bool]:
        """Run the remaining steps of the epoch; returns False if the run was stopped."""
        plan, teachers, config, per_epoch = self.setup.plan, self.setup.teachers, self._config, self._per_epoch
        with closing(self.setup.train.batches(self.state.epoch, self.state.step_in_epoch)) as batches:
            self._begin_clock()
            for batch, following in pair_with_next(batches):
                if teachers is not None:
                    batch = teachers.add_targets(batch, following)
                rate = learning_rate(config, self._schedule_step(), config.epochs * per_epoch, per_epoch)
                self._running.append(_RunningStep(batch, rate, start_step(plan, batch, rate, following)))
                if len(self._running) > self._ahead:
                    yield from self._end_step()
                if self._agreement.requested or self._is_late() or (self._timed and not self._running):
                    yield from self._interrupt()
                if self._agreement.stop or self._is_late():
                    break
            yield from self._interrupt()
        return self._is_late() or not self._agreement.stop

    def _interrupt(self) -> Generator[events.Event, None, None]:
        """End all steps, and do what needs the plan at rest."""
        while self._running:
            yield from self._end_step()
        yield from self._emit()
        if self._timed:
            yield self._time_kernels(*self._timed)
        self._timed, self._agreement.time = None, False
        if self._agreement.save:
            yield from self._save()
        self._begin_clock()

    def _end_step(self) -> Generator[events.Event, None, None]:
        """Wait for the oldest step; meanwhile the events of the one before are logged."""
        yield from self._emit()
        plan, loader, before = self.setup.plan, self.setup.train, self.state
        step = self._running.popleft()
        loader.pages.check()  # a CPU plan reads photos in place
        result = step.wait()
        if not result.is_finite:
            while self._running:
                self._running.popleft().wait()
                plan.gradient(step.batch)  # that of the later step took its place
            layer = find_broken_layer(plan, self.setup.graph, step.batch, self.setup.device, loader.photos, self._ranks)
            kept = str(self.path / LAST) if (self.path / LAST).exists() else ""
            raise diverged(before.step + 1, result.loss, layer, kept)
        seconds = time.monotonic() - self._begun
        self.state = before.after_step(result, seconds)
        self._last = events.StepDone(
            self.state.step, before.epoch, result.loss, result.correct / result.photos, step.rate, result.photos,
            seconds, loader.wait_seconds - self._waited,
        )  # fmt: skip
        if self.folder is not None and self._sampling.is_due(before.step, seconds):
            self._timed = self.state.step, step.batch
        if self.commands.paused() or not plan.asynchronous:
            yield from self._emit()
        self._agreement.renew(self.state.seconds, self._timed is not None)
        self._begin_clock()

    def _begin_clock(self) -> None:
        self._begun, self._waited = time.monotonic(), self.setup.train.wait_seconds

    def _emit(self) -> Iterator[events.Event]:
        """The events of the last step, once."""
        done, self._last = self._last, None
        if done is None:
            return
        yield done
        if message := self._stall.look(done.step, done.loss):
            yield events.Warned(message, urgent=self._stall.stalled)

    def _time_kernels(self, step: int, batch: PhotoBatch) -> events.KernelTimes:
        """Compute a batch again, kernel by kernel, without changing weights."""
        begin, plan = time.monotonic(), self.setup.plan
        times = tuple(plan.time_kernels(cut_batch(batch, 0, plan.batch)))
        seconds = time.monotonic() - begin
        self._sampling.count(self.state.step, seconds)
        return events.KernelTimes(step, times, seconds)

    def _schedule_step(self) -> int:
        """The number of the next step in the schedule; under a time limit at least the used share of the time."""
        config, total, step = self._config, self._config.epochs * self._per_epoch, self.state.step + len(self._running)
        if not config.minutes:
            return step
        return max(step, min(int(self._agreement.seconds / (60 * config.minutes) * total), total - 1))

    def _is_late(self) -> bool:
        return bool(self._config.minutes) and self._agreement.seconds >= 60 * self._config.minutes

    def _is_validation_due(self) -> bool:
        done, config = self.state.epoch + 1, self._config
        return done % config.validate_every == 0 or done >= config.epochs or self._is_late()

    def _end_epoch(
        self, folder: RunFolder, weights: Mapping[str, Array], figures: Metrics, seconds: float
    ) -> Generator[events.Event, None, None]:
        state = self.state
        best = state.is_better(figures)
        self.state = state.after_epoch(figures, seconds)
        if best:
            save_best(self.setup, folder, weights, figures, state.epoch)
        yield events.EpochDone(
            state.epoch, state.step, state.train_loss, state.train_accuracy, figures.loss, figures.accuracy, best,
            figures.confusion, state.epoch_seconds + seconds, state.photos / max(state.epoch_seconds, 1e-9),
            self.setup.plan.memory.total, figures.macro_f1 if figures.several else None,
            figures.several.average_precision if figures.several else None,
        )
        yield from self._save(best)

    def _save(self, best: bool = False) -> Generator[events.CheckpointSaved, None, None]:
        """Write a checkpoint after syncing the logs. Raises if weights are not finite."""
        self._agreement.saved()
        if self.folder is None:
            return
        setup, state = self.setup, self.state
        weights = setup.plan.weights()
        for name, array in weights.items():
            if not np.isfinite(array).all():
                raise diverged(state.step, float("nan"), name.rpartition(".")[0], str(self.path / LAST))
        checkpoint = Checkpoint(
            to_dict(self._config), setup.classes, setup.fingerprint, setup.conditions, state, self.folder.sync(),
            weights, setup.plan.state(), setup.teachers.digests if setup.teachers else (), setup.start_hash,
        )
        path = save_checkpoint(self.folder.path, checkpoint)
        self._agreement.saved()
        yield events.CheckpointSaved(state.step, str(path), best)

    def _started(self) -> events.RunStarted:
        setup, config = self.setup, self._config
        kernels = tuple(sorted({kernel for _, _, kernel in setup.plan.kernels()}))
        return events.RunStarted(
            str(self.path), setup.graph.name, setup.device, setup.classes, len(setup.photos.rows(TRAIN)),
            len(setup.validation.labels), 0 if setup.test is None else len(setup.test.labels), config.epochs,
            self._per_epoch, self.state.step, setup.plan.memory.total, kernels,
        )

    def _finished(
        self, reason: str, model: str, report: str = "", evaluation: RunEvaluation | None = None
    ) -> events.RunFinished:
        state: RunState = self.state
        tested = evaluation.result if evaluation and evaluation.split == "test" else None
        return events.RunFinished(
            reason, state.step, state.best_epoch, max(state.best_accuracy, 0.0),
            tested.figures.accuracy if tested else None, model, report, state.seconds,
        )


def watch_for_stall(setup: Setup) -> StallWatch:
    config, train = setup.config, setup.train
    guessing = guessing_loss(train.labels, len(setup.classes), config.sampling, config.class_weights,
                             config.label_smoothing, train.targets)  # fmt: skip
    return StallWatch(guessing, round(config.warmup * config.epochs * train.steps))
