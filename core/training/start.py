"""Opens the folder of a run and restores its state, at the first step or the last checkpoint."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.data.dataset import write_skipped
from core.data.split import open_split, write_split
from core.diagnosis.model_identity import BEST, rename_model
from core.errors import DataError, ModelFileError
from core.training.agreement import check_ranks, share_plan, share_state
from core.training.checkpoint import Checkpoint, RunState, load_checkpoint
from core.training.conditions import describe_change
from core.training.run_folder import SKIPPED, SPLIT, RunFolder, create_run, read_config
from core.training.setup import Setup


@dataclass(frozen=True, slots=True)
class Started:
    """The state of the run, warnings for the user, and the open folder on the rank that writes to it."""

    folder: RunFolder | None
    state: RunState
    warnings: tuple[str, ...]


def start_run(setup: Setup, path: Path, resume: bool, overwrite: bool) -> Started:
    """Create the folder of a run, or load the last checkpoint of an earlier run into the plan; rank 0 does it for all.

    Raises DataError if the photos have changed, ModelFileError if no checkpoint is valid.
    """
    ranks = setup.communicator
    check_ranks(setup)
    started = Started(None, RunState(), ())
    if ranks.rank == 0:
        started = _resume(setup, path) if resume else _begin(setup, create_run(path, setup.config, overwrite))
    share_plan(ranks, setup.plan)
    return replace(started, state=share_state(ranks, started.state))


def _resume(setup: Setup, path: Path) -> Started:
    folder = RunFolder(path)
    try:
        started = _continue(setup, folder)
        if (path / BEST).exists() and read_config(path).name != setup.config.name:
            rename_model(path / BEST, setup.config.name)
        folder.write_config(setup.config)  # photos or teachers may have moved
        return replace(started, warnings=(*started.warnings, *_write_skipped(setup, path)))
    except BaseException:
        folder.release()
        raise


def _begin(setup: Setup, folder: RunFolder) -> Started:
    try:
        _write_split(setup, folder.path)
        return Started(folder, RunState(), _write_skipped(setup, folder.path))
    except BaseException:
        folder.discard()
        raise


def _continue(setup: Setup, folder: RunFolder) -> Started:
    path = folder.path
    checkpoint, note = load_checkpoint(path)
    if checkpoint is None:
        folder.cut({})
        if not (path / SPLIT).exists():
            _write_split(setup, path)
        return Started(folder, RunState(), ("There is no checkpoint yet. The run starts at its first step.",))
    _check_same(setup, path, checkpoint)
    setup.plan.load(checkpoint.weights)
    setup.plan.load_state(checkpoint.optimizer)
    folder.cut(checkpoint.logs)
    change = describe_change(checkpoint.conditions, setup.conditions, checkpoint.state.step)
    return Started(folder, checkpoint.state, tuple(filter(None, (note, change))))


def _check_same(setup: Setup, path: Path, checkpoint: Checkpoint) -> None:
    if checkpoint.fingerprint != setup.fingerprint:
        changes = _describe_changes(setup, path / SPLIT)
        raise DataError(
            f"The photos have changed since the run {path} started: {changes}. Restore them, or start a new run from "
            f"its weights with --from {path}."
        )
    steps, state = setup.train.steps, checkpoint.state
    if state.step_in_epoch > steps or state.step > state.epoch * steps + state.step_in_epoch:
        raise ModelFileError(
            f"The checkpoint of the run {path} is damaged: step {state.step} cannot be step {state.step_in_epoch} of "
            f"epoch {state.epoch + 1}. Copy the run again, or start a new run from its weights with --from {path}."
        )
    if checkpoint.teachers != (setup.teachers.digests if setup.teachers else ()):
        raise ModelFileError(
            f"The teachers of the run {path} have changed or moved. Restore their files, or give their new paths with "
            f"--teacher in the same order. Or start a new run with --from {path}."
        )
    if setup.start_hash != checkpoint.origin:
        raise ModelFileError(f"The run {path} started from another model. Give the file that it started from with "
                             "--from, or start a new run.")  # fmt: skip


def _write_split(setup: Setup, path: Path) -> None:
    photos = setup.photos
    write_split(path / SPLIT, photos.dataset, photos.cache, photos.splits, photos.groups)


def _write_skipped(setup: Setup, path: Path) -> tuple[str, ...]:
    """Write the list of skipped photos; returns a sentence with its path, if there are any."""
    sets = {"photos": setup.photos.cache.skipped}
    if setup.field_photos is not None:
        sets["field"] = setup.field_photos.cache.skipped
    if not write_skipped(path / SKIPPED, sets):
        return ()
    return (f"Every excluded photo is listed in {path / SKIPPED} with the reason.",)


def _describe_changes(setup: Setup, split_file: Path) -> str:
    """Compare paths and contents of the photos with those in the run's split.csv, which may be missing or damaged."""
    old: dict[str, str] = {}
    with suppress(DataError):
        written, _ = open_split(split_file)
        old = dict(zip(written.paths, written.columns["sha256"], strict=True))
    dataset, cache = setup.photos.dataset, setup.photos.cache
    new = {dataset.paths[row]: cache.content[row].tobytes().hex() for row in cache.kept}
    gone, added = len(old.keys() - new.keys()), len(new.keys() - old.keys())
    altered = sum(old[path] != new[path] for path in old.keys() & new.keys())
    parts = [f"{n} {word}" for n, word in ((gone, "missing"), (added, "new"), (altered, "changed")) if n]
    return "; ".join(parts) or "their classes or their split changed"
