"""Errors as sentences for the person who sees them: what happened, and what to do.

Raised where the cause is known, caught only by the command lines and the training thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
EXIT_STOPPED = 3
"""Exit code of a stopped training, whose run can be resumed with ``--resume``."""
EXIT_LOST = 4
"""Exit code of a rank of a training that other ranks did not answer."""
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C with nothing to resume; as in shells, 128 plus the signal's number."""
EXIT_CODES = "Exit codes: 0 done, 1 other errors, 2 wrong input, 130 stopped by Ctrl-C"
"""For the help of every command but the training's, which knows a fifth."""


RESUME = "Continue the training with --resume from its last checkpoint."


class LeafClinicError(Exception):
    """A failure the program understands; its text is shown as it is."""

    exit_code = EXIT_FAILED


class InputError(LeafClinicError):
    """What the user gave cannot be used; nothing was written."""

    exit_code = EXIT_WRONG_INPUT


@final
class DataError(InputError):
    """The photos, folder or manifest cannot be used."""


@final
class ModelFileError(InputError):
    """A model, checkpoint or ONNX file is cut, altered or of another version."""


@final
@dataclass(frozen=True)
class Problem:
    """One thing wrong with one field of the configuration."""

    field: str
    message: str


OPTION_NAMES: Final = {
    "start": "from", "start_colours": "input_normalization", "use_size": "eval_size", "teacher_share": "teacher_weight",
    "average": "ema_decay", "time_every": "profile_every",
}  # fmt: skip
"""Fields whose option on the command line has another name."""


def option_name(field: str) -> str:
    """The command-line option of a field of the configuration, such as ``--batch-size``."""
    return "--" + OPTION_NAMES.get(field, field).replace("_", "-")


@final
class ConfigError(InputError):
    """Impossible options, all of them at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{option_name(p.field)}: {p.message}" for p in problems))


@final
class DeviceError(InputError):
    """The device asked for cannot be opened, with the reason and the remedy."""


@final
class OutOfMemory(LeafClinicError):
    """The device has less memory than the plan needs; says what would fit."""


@final
class KernelUnavailable(InputError):
    """A kernel asked for by name refuses the case, with its reason."""


@final
class TrainingDiverged(LeafClinicError):
    """The loss or a gradient is not finite; says the step and the layer."""


@final
class StorageError(LeafClinicError):
    """A file of the run could not be written (full disk, rights); the run stays resumable."""


class RankFailed(LeafClinicError):
    """Another error, on one of several ranks."""

    def __init__(self, rank: int, error: LeafClinicError) -> None:
        self.exit_code = error.exit_code
        super().__init__(f"Rank {rank}: {error}")


@final
class RankLost(LeafClinicError):
    """Ranks of a run on several devices have ended or do not answer; the run stays resumable."""

    exit_code = EXIT_LOST

    def __init__(self, ranks: Sequence[int], seconds: float) -> None:
        self.ranks = tuple(ranks)
        listed = ", ".join(str(rank) for rank in ranks)
        names = f"Rank {listed}" if len(self.ranks) == 1 else f"Ranks {listed}" if ranks else "Another rank"
        super().__init__(f"{names} did not answer for {seconds:.0f} seconds, so the training ended. {RESUME}")
