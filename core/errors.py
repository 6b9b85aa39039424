"""Errors as sentences for the user: what happened, and what to do. Only the command lines and threads catch them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_WRONG_INPUT = 2
EXIT_STOPPED = 3
"""Exit code of a stopped training, whose run can be resumed with ``--resume``."""
EXIT_LOST = 4
"""Exit code of a training rank to which other ranks did not answer."""
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C with nothing to resume; as in shells, 128 plus the signal's number."""
EXIT_CODES = "Exit codes: 0 done, 1 other errors, 2 wrong input, 130 stopped by Ctrl-C"
"""For the help of every command but training, which has further codes."""

RESUME = "Continue the training with --resume from its last checkpoint."


class LeafClinicError(Exception):
    """An expected failure, whose text is shown to the user."""

    exit_code = EXIT_FAILED


class InputError(LeafClinicError):
    """The input cannot be used; nothing was written."""

    exit_code = EXIT_WRONG_INPUT


class DataError(InputError):
    """The photos, folder or manifest cannot be used."""


class ModelFileError(InputError):
    """A model, checkpoint or ONNX file is truncated, altered or of another version."""


@dataclass(frozen=True)
class Problem:
    """A problem of one field of the configuration."""

    field: str
    message: str


OPTION_NAMES: Final = {
    "start": "from", "start_colours": "input_normalization", "use_size": "eval_size", "teacher_share": "teacher_weight",
    "average": "ema_decay", "time_every": "profile_every",
}  # fmt: skip
"""Command-line options whose name differs from the field's."""


def option_name(field: str) -> str:
    """The command-line option of a field of the configuration, such as ``--batch-size``; an option is given back."""
    return field if field.startswith("-") else "--" + OPTION_NAMES.get(field, field).replace("_", "-")


class ConfigError(InputError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{option_name(p.field)}: {p.message}" for p in problems))


class DeviceError(InputError):
    """The requested device cannot be opened."""


class OutOfMemory(LeafClinicError):
    """The device has less memory than the plan needs."""


class KernelUnavailable(InputError):
    """A kernel requested by name cannot compute the case."""


class TrainingDiverged(LeafClinicError):
    """The loss or a gradient is not finite."""


class StorageError(LeafClinicError):
    """A file could not be written (full disk, permissions), or was truncated while it was in use."""


class RankFailed(LeafClinicError):
    """Another error, on one of several ranks."""

    def __init__(self, rank: int, error: LeafClinicError) -> None:
        self.exit_code = error.exit_code
        super().__init__(f"Rank {rank}: {error}")


class RankLost(LeafClinicError):
    """Ranks of a run have ended or do not answer; the run stays resumable."""

    exit_code = EXIT_LOST

    def __init__(self, ranks: Sequence[int], seconds: float) -> None:
        self.ranks = tuple(ranks)
        listed = ", ".join(str(rank) for rank in ranks)
        names = f"Rank {listed}" if len(self.ranks) == 1 else f"Ranks {listed}" if ranks else "Another rank"
        super().__init__(f"{names} did not answer for {seconds:.0f} seconds, so the training ended. {RESUME}")
