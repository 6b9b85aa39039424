"""One rank of `tests/core/distributed/test_ranks.py`: ``mpirun -n N python -m tests.helpers.ranks PHOTOS OUT``.

Rank 0 leaves what it found in OUT/found.json.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.communicator import Communicator, SingleProcess
from core.config import RunConfig
from core.device import Optimizer, PhotoBatch
from core.diagnosis.background_dependence import Baseline
from core.diagnosis.completion import complete_model
from core.distributed.rank_environment import connect, find_rank
from core.errors import InputError
from core.models.architectures import build
from core.models.init import initial_weights
from core.ops.builder import with_loss
from core.ops.photo import identity_augmentation
from core.plan import compile_plan
from core.training.checkpoint import LAST, PREVIOUS, read_checkpoint
from core.training.commands import Commands
from core.training.events import EpochDone, KernelTimes, RunFinished, StepDone, Warned
from core.training.step import start_step
from core.training.trainer import Trainer
from tests.helpers import squares
from tests.helpers.models import small_model

SIDE = 16


def exchange(ranks: Communicator) -> dict[str, object]:
    """Contents of all lengths, also none, and the mean of odd numbers."""
    own = bytes([ranks.rank]) * (3 * ranks.rank)
    mean = np.full(7, 2 * ranks.rank + 1, np.float32)
    ranks.average_gradients([(mean.ctypes.data, 5)])
    return {"gathered": [part.hex() for part in ranks.gather(own)],
            "broadcast": ranks.broadcast(b"from 0" if ranks.rank == 0 else b"mine").decode(),
            "mean": [part.hex() for part in ranks.gather(mean.tobytes())], "nothing": ranks.broadcast(b"").decode()}


def take_uneven_steps(
    ranks: Communicator, photos: int, batch: int, parts: int, name: str = "cnn", side: int = SIDE, rtol: float = 1e-5,
    device: str = "cpu", steps: int = 3,
) -> float:  # fmt: skip
    """Steps of batches that do not divide evenly, or leave ranks without a photo: the largest difference of a weight
    or running statistic from those of one process that computes whole batches."""
    weights = (0.2, 1.0, 1.8)
    graph = with_loss(build(name, 3, side, dropout=0.0), 0.1, weights)
    rng = np.random.default_rng(5)
    whole = PhotoBatch(rng.integers(0, 256, (photos, side, side, 3)).astype(np.uint8),
                       identity_augmentation(photos, side, side), rng.integers(0, 3, photos).astype(np.int32))
    found = []
    part = -(-batch // (ranks.size * parts))
    for communicator, size in ((ranks, part), (None, batch)):
        plan = compile_plan(graph, device=device, batch=size, training=True, threads=1,
                            optimizer=Optimizer("sgd", clip_norm=0.5), communicator=communicator,
                            sync_batch_norm=communicator is not None)  # fmt: skip
        plan.load(initial_weights(graph, 0))
        share = whole if communicator is None else share_of(whole, ranks.rank * part * parts, part * parts, parts)
        results = [start_step(plan, share, 0.1)() for _ in range(steps)]
        found.append((plan.weights(), results))
        plan.close()
    (split, shared), (together, one) = found
    assert [r.photos for r in shared] == [r.photos for r in one] == [photos] * steps
    assert [r.correct for r in shared] == [r.correct for r in one]
    assert np.allclose([r.loss for r in shared], [r.loss for r in one], rtol=rtol)
    assert np.allclose([r.gradient_norm for r in shared], [r.gradient_norm for r in one], rtol=10 * rtol)
    return max(float(np.abs(split[name] - together[name]).max()) for name in split)


def complete_together(ranks: Communicator) -> dict[str, object]:
    model = small_model(("apple/scab", "background/none", "bean/rust"), squares.SIDE)
    photos = squares.squares(40, 0), squares.squares(41, 1)
    split, alone = (complete_model(model, *photos, threads=1, baseline=Baseline(0.5, 0.5), communicator=one)
                    for one in (ranks, SingleProcess()))  # fmt: skip
    return {"sections": [split.sections, alone.sections], "temperatures": [split.temperature, alone.temperature],
            "extra": max(float(np.abs(split.extra[name] - alone.extra[name]).max()) for name in alone.extra)}


def share_of(whole: PhotoBatch, first: int, count: int, parts: int) -> PhotoBatch:
    """As `core.data.loader` shares a batch out."""
    rows = slice(first, first + count) if first < len(whole.labels) else slice(0, 1)
    labels = whole.labels[rows] if first < len(whole.labels) else np.array([-1], np.int32)
    return PhotoBatch(whole.photos[rows], whole.augmentation[rows], labels, first=first, parts=parts,
                      step_labels=whole.labels)  # fmt: skip


class Runs:
    """Training runs of all ranks, or of rank 0 alone."""

    def __init__(self, photos: str, out: Path) -> None:
        self.environment, self.out = find_rank(), out
        self.config = RunConfig(data=photos, cache=str(out / "cache"), model="cnn", image_size=SIDE, epochs=2,
                                batch_size=12, augment="light", mix=0.5, device="cpu", threads=1, dropout=0.2,
                                learning_rate=3e-3, validation=0.2, test=0.2, clip_norm=1.0, average=0.9,
                                class_weights="balanced", leaf_tests=False, checkpoint_seconds=0.1)  # fmt: skip

    def train(self, name: str, *, stop_after: int = 0, stops: int = 0, resume: bool = False, **changes: object) -> list:
        """All events; after so many steps the rank `stops` wants to stop."""
        commands, events = Commands(), []
        config = replace(self.config, out=str(self.out / name), **changes)
        trainer = Trainer(config, resume=resume, environment=self.environment)
        for event in trainer.run(commands):
            events.append(event)
            stopped = isinstance(event, StepDone) and event.step == stop_after
            if stopped and self.environment.rank == stops:
                commands.stop()
        return events

    def train_alone(self, name: str, **changes: object) -> list:
        return list(Trainer(replace(self.config, out=str(self.out / name), **changes)).run())

    def difference(self, one: str, other: str) -> float:
        first, second = (read_checkpoint(self.out / name / LAST) for name in (one, other))
        return max(float(np.abs(first.weights[n] - second.weights[n]).max()) for n in first.weights)

    def are_equal(self, one: str, other: str) -> bool:
        first, second = (read_checkpoint(self.out / name / LAST) for name in (one, other))
        return all(np.asarray(part[name]).tobytes() == np.asarray(twin[name]).tobytes() for part,
                   twin in ((first.weights, second.weights), (first.optimizer, second.optimizer)) for name in part)


def compare_runs(runs: Runs, ranks: Communicator) -> dict[str, object]:
    whole = runs.train("whole")
    last = ranks.size - 1
    first = runs.train("parted", stop_after=2, stops=last)
    second = runs.train("parted", resume=True)
    timed = runs.train("timed", batch_size=3, time_every=2)
    found: dict[str, object] = {"timed": [e.step for e in timed if isinstance(e, KernelTimes)], "refused": ""}
    try:
        runs.train("refused", **({"seed": 5} if ranks.rank == last else {}))
    except InputError as error:
        found["refused"] = str(error)
    if ranks.rank == 0:
        alone = runs.train_alone("alone", accumulate=ranks.size)
        found |= {
            "difference": runs.difference("whole", "alone"), "resumed equal": runs.are_equal("whole", "parted"),
            "stopped": [e.reason for e in first if isinstance(e, RunFinished)],
            "losses": [[e.loss for e in events if isinstance(e, StepDone)] for events in (whole, alone)],
            "resumed losses": [e.loss for e in (*first, *second) if isinstance(e, StepDone)],
            "validated": [[(e.validation_accuracy, e.validation_loss) for e in events if isinstance(e, EpochDone)]
                          for events in (whole, alone)],
            "tested": [events[-1].test_accuracy for events in (whole, alone)],
        }  # fmt: skip
        changed = Trainer(replace(runs.config, out=str(runs.out / "parted")), resume=True)
        (runs.out / "parted" / LAST).unlink()  # the checkpoint before the end
        assert (runs.out / "parted" / PREVIOUS).exists()
        found["changed"] = [e.message for e in changed.run() if isinstance(e, Warned)]
    return found


def main(photos: str, out: str) -> None:
    runs = Runs(photos, Path(out))
    ranks = connect(runs.environment, "cpu")
    found = exchange(ranks) | {
        "uneven": [take_uneven_steps(ranks, *case) for case in ((10, 10, 1), (7, 8, 2), (3, 16, 2), (2, 64, 1))],
        "synchronized": [take_uneven_steps(ranks, *case, 1, "squeezenet1_1_bn", 32, 1e-3)
                         for case in ((10, 10), (9, 32))],
        "completed": complete_together(ranks), **compare_runs(runs, ranks),
    }  # fmt: skip
    ranks.barrier()
    if ranks.rank == 0:
        (Path(out) / "found.json").write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
