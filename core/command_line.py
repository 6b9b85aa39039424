"""Shared by the command lines: options for the fields of RunConfig, errors as sentences, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import math
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from core import end_at_once
from core.config import KINDS, RunConfig, from_dict, settings, to_dict
from core.data.photo_format import EXTENSIONS
from core.distributed.rank_environment import add_gpu
from core.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_WRONG_INPUT,
    OPTION_NAMES,
    ConfigError,
    InputError,
    LeafClinicError,
    Problem,
    option_name,
)
from core.storage import NO_ROOM, inside_photos, is_name_too_long, refuse_pipe
from core.text import json_line, printable
from core.training.presets import PRESETS

WITHOUT_TRAINING: Final = {"device": "device to compute on",
                           "name": "name of the model (default: model name, photo folder, date and time)"}  # fmt: skip
"""Help texts of commands that take only some fields and do not train."""

CHANGEABLE: Final = frozenset({
    "data", "cache", "device", "threads", "minutes", "checkpoint_seconds", "time_every", "verify", "stream_photos",
    "field", "leaf_tests", "start", "teacher", "name", "gpus",
})
"""Fields that may change when a run is resumed."""

METAVARS: Final = {
    "data": "PHOTOS", "field": "PHOTOS", "where": "COLUMN=VALUE", "label": "COLUMN", "split": "FILE", "cache": "FOLDER",
    "start": "MODEL", "teacher": "MODEL", "out": "RUN", "preset": "NAME", "algorithm": "NAME", "name": "NAME",
}
"""Placeholders of values in the help, of one value of a list."""

AUTOMATIC: Final = {"batch_size": 0, "threads": 0}
"""Values of "auto" for numbers."""

CROWDED: Final = ("This computer has too little free memory or too many threads. Close other programs, then try "
                  "again.")  # fmt: skip
OPERAND: Final = "\0"
"""Starts an argument behind ``--``, and a value ``--``, while arguments are parsed, which take them for options."""

WRITERS: Final = {**dict.fromkeys(EXTENSIONS, ()), ".png": ("png",), ".csv": (),
                  ".safetensors": ("out", "model_file"), ".onnx": ("onnx",)}
"""Endings of photos, models and tables, and the options that may write such files; tables have a heading instead."""

TRUTHS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def add_settings(parser: argparse.ArgumentParser, only: Sequence[str] = ()) -> None:
    """Add an option for every field of RunConfig, or of `only`, in the groups of its rows.

    Values stay text: `read_settings` converts them, so that all mistakes are reported at once.
    """
    made: dict[str, Any] = {}
    for name, (entry, row) in settings().items():
        if only and name not in only:
            continue
        if row.group not in made:
            made[row.group] = parser.add_argument_group(row.group)
        group = made[row.group]
        if name == "device":
            add_gpu(group)
        default = entry.default
        text = WITHOUT_TRAINING.get(name, row.help) if only else row.help
        text = "; ".join((text, *(f"{choice}: {meaning}" for choice, meaning in row.meanings.items())))
        help_text = text.replace("%", "%%") + _default_text(default)
        flag = option_name(name)
        metavar = METAVARS.get(name, "{" + ",".join(row.choices) + "}" if row.choices else
                               {bool: "yes|no", int: "N", float: "X"}.get(type(default), "TEXT"))  # fmt: skip
        more: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "metavar": metavar}
        if isinstance(default, bool):
            group.add_argument(flag, nargs="?", const="true", help=help_text, **more)
            group.add_argument("--no-" + flag[2:], action="store_const", const="false", dest=name,
                               default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        else:
            group.add_argument(flag, action="append" if isinstance(default, tuple) else "store", help=help_text, **more)


def read_settings(arguments: argparse.Namespace, found: list[Problem]) -> dict[str, Any]:
    """The settings given as options, converted to their types; mistakes are added to `found`."""
    chosen = {}
    for name, (entry, _) in settings().items():
        text = getattr(arguments, name, None)
        if text is None:
            continue
        try:
            chosen[name] = AUTOMATIC[name] if text == "auto" and name in AUTOMATIC else _convert(text, entry.default)
        except (ValueError, KeyError):
            found.append(Problem(name, f"{text!r} is not {KINDS[type(entry.default)]}."))
    return chosen


def read_coverage(text: str, found: list[Problem]) -> float:
    """The share of photos to diagnose, above 0 and up to 1, from an option; a mistake is added to `found`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        found.append(Problem("coverage", f"{text!r} is not a number above 0 and up to 1, such as 0.5."))
    return value


def check_folder(
    name: str, file: str, found: list[Problem], photos: Iterable[str] = (), needed: bool = False, heading: str = ""
) -> None:
    """Check before any work that a file can be written: its folder exists and is not inside a folder of `photos`, and
    it replaces none of them, no photo, no model and no table of others. heading: how a table begins that the option
    writes. A mistake is added to `found`."""
    folder, real = Path(file).absolute().parent, os.path.realpath
    if not file:
        found += [Problem(name, "is missing. Give the name of the file to write.")] * needed
    elif not os.path.isdir(folder):
        found.append(Problem(name, f"there is no folder {folder}."))
    elif not os.access(folder, os.W_OK):
        found.append(Problem(name, f"there is no permission to write in {folder}. Choose another folder."))
    elif is_name_too_long(file):
        found.append(Problem(name, f"The name {file} is too long. Give a shorter one."))
    elif os.path.exists(file) and not os.path.isfile(file):
        found.append(Problem(name, f"{file} is a folder or a device. Give the name of a file."))
    elif real(file) in map(real, photos) or not _may_write(name, file, heading):
        found.append(Problem(name, f"{file} is a photo, table or model, which is not replaced. Give another name."))
    elif refusal := inside_photos(file, photos):
        found.append(Problem(name, refusal))


def _may_write(name: str, file: str, heading: str) -> bool:
    suffix = Path(file).suffix.lower()
    if not heading:
        return name in WRITERS.get(suffix, (name,))
    if suffix != ".csv":
        return suffix not in WRITERS
    if not os.path.exists(file):
        return True
    with open(file, "rb") as table:
        return table.read(len(heading)) == heading.encode()


def read_toml(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, flat or in tables; expands ~. Raises InputError."""
    try:
        refuse_pipe(path)
        raw = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", "") or error
        raise InputError(f"The settings in {path} cannot be read: {reason}.") from error
    fields = {option: name for name, option in OPTION_NAMES.items()}
    found: dict[str, Any] = {}
    for table in ({key: value} if not isinstance(value, dict) else value for key, value in raw.items()):
        for key, value in table.items():
            name = key.replace("-", "_")
            field = fields.get(name, name)
            if field in found:
                raise InputError(f"The settings in {path} have {key} twice. Remove one of them.")
            found[field] = os.path.expanduser(value) if isinstance(value, str) else value
    return found


def merge_settings(options: Mapping[str, Any], file: Mapping[str, Any], found: list[Problem]) -> RunConfig:
    """Combine preset, file and options; later ones override. Raises ConfigError with all problems."""
    preset = str(options.get("preset", file.get("preset", "")))
    recipe: Mapping[str, Any] = {}
    if preset in PRESETS:
        recipe = PRESETS[preset].values
    elif preset:
        found.append(Problem("preset", f"{preset!r} is not one of {', '.join(PRESETS)}."))
    try:
        config = from_dict({**recipe, **file, **options})
    except ConfigError as error:
        found.extend(error.problems)
        config = RunConfig()
    if found:
        raise ConfigError(found)
    return config


def change_settings(config: RunConfig, changes: Mapping[str, Any], found: list[Problem]) -> RunConfig:
    """The configuration of a resumed run. Raises ConfigError for fields that cannot change."""
    same = to_dict(config)
    for name in changes:
        if name not in CHANGEABLE and changes[name] != same[name]:
            found.append(Problem(name, f"cannot change when a run is resumed (it is {same[name]!r}). Start a new run."))
    if found:
        raise ConfigError(found)
    return from_dict({**same, **changes})


def read_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[argparse.Namespace, list[Problem]]:
    """Parse the arguments, ~ as home folder; `given` names those set. Unknown ones are problems. Raises InputError."""
    errors = io.StringIO()
    at = [*argv, "--"].index("--")  # where argparse accepts it depends on Python's version
    argv = [*argv[:at], *(f"{OPERAND}{text}" for text in argv[at + 1 :])]
    argv = [f"{text[:-2]}{OPERAND}--" if text[:1] == "-" and text.partition("=")[2] == "--" else text for text in argv]
    try:
        with contextlib.redirect_stderr(errors):
            arguments, unknown = parser.parse_known_intermixed_args(argv)
    except SystemExit as end:
        if not end.code:  # --help
            raise
        raise InputError(errors.getvalue().strip().replace(OPERAND, "")) from None
    for name, value in vars(arguments).items():
        if isinstance(value, str | list):
            new = [os.path.expanduser(v.removeprefix(OPERAND)) for v in ([value] if isinstance(value, str) else value)]
            setattr(arguments, name, new[0] if isinstance(value, str) else new)
    arguments.given = {name for name, value in vars(arguments).items() if value and value != parser.get_default(name)}
    options = [text for text in unknown if text.startswith("-")]
    if unknown and not options:
        named = " ".join(unknown).replace(OPERAND, "")
        raise InputError(f"Unknown arguments: {named}. {parser.prog} --help lists the arguments.")
    return arguments, [Problem(text, "there is no such option.") for text in options]


def read_alone(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """`read_arguments` of a command without settings. Raises InputError, also for unknown options."""
    arguments, found = read_arguments(parser, argv)
    if found:
        raise ConfigError(found)
    return arguments


def print_json_error(message: str, exit_code: int) -> None:
    """Print the error as one JSON object, for the program that reads the output."""
    sys.stdout.write(json_line({"error": message, "exit_code": exit_code}) + "\n")
    sys.stdout.flush()


def as_command(work: Callable[[Sequence[str]], int]) -> Callable[..., int]:
    """Decorate the main function of a command: it runs by `run_command`."""
    return partial(run_command, work)


def run_command(
    work: Callable[[Sequence[str]], int], argv: Sequence[str] | None = None,
    print_error: Callable[[str, int], None] | None = print_json_error,
) -> int:  # fmt: skip
    """Run a command on its arguments, by default those of this process; returns its exit code.

    Expected errors become a sentence on the error stream. print_error: also prints it where ``--json`` is given; None:
    it has another meaning.
    """
    argv = sys.argv[1:] if argv is None else argv
    on_failure = print_error if "--json" in argv else None
    if signal.getsignal(signal.SIGINT) is end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _prepare_streams()
    try:
        done = work(argv)
        sys.stdout.flush()
        return done
    except ConfigError as error:
        return _fail(f"These options are not valid:\n{error}", error.exit_code, on_failure)
    except LeafClinicError as error:
        return _fail(str(error), error.exit_code, on_failure)
    except MemoryError:
        return _fail(CROWDED, EXIT_FAILED, on_failure)
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        return _fail(CROWDED, EXIT_FAILED, on_failure)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, end_at_once)  # what the end of the program waits for, a second Ctrl-C ends
        sys.stderr.write("\n")
        return _fail("Stopped.", EXIT_INTERRUPTED, on_failure)
    except BrokenPipeError:
        mute()
        return EXIT_DONE
    except OSError as error:
        return _fail_system(error, on_failure)


def _prepare_streams() -> None:
    """Make the standard streams safe to write to: closed ones (``>&-``) are replaced, and any file name is printed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, exit_code: int, on_failure: Callable[[str, int], None] | None) -> int:
    sys.stderr.write(printable(message, "\n") + "\n")
    try:
        if on_failure is not None:
            on_failure(message, exit_code)
    except BrokenPipeError:
        mute()
    return exit_code


def _fail_system(error: OSError, on_failure: Callable[[str, int], None] | None) -> int:
    """Report a full disk, or what the system refuses to open; any other error is raised again."""
    if error.errno in NO_ROOM:
        mute()  # buffered output cannot be written either
        return _fail(f"{error.filename or 'The output'} could not be saved: {error.strerror}. Free disk space or "
                     "choose another folder.", EXIT_FAILED, None)  # fmt: skip
    if error.filename is None and error.errno != errno.ENOENT:
        raise error
    file = error.filename or "The current folder"  # which may have been deleted
    return _fail(f"{file} cannot be used: {error.strerror}. Check its name, its permissions and its disk.",
                 EXIT_WRONG_INPUT, on_failure)  # fmt: skip


def mute_unread(error: OSError) -> None:
    """`mute` if the error is that the output's pipe or terminal is closed; raise any other one again."""
    if error.errno not in (errno.EPIPE, errno.EIO) or error.filename is not None:
        raise error
    mute()


def mute() -> None:
    """Discard further output, also that of the interpreter's end: its reader is gone, or the disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _convert(text: Any, default: Any) -> Any:
    return TRUTHS[text.lower()] if isinstance(default, bool) else type(default)(text)


def _default_text(default: Any) -> str:
    if default in ("", ()):
        return ""
    shown = {True: "yes", False: "no"}[default] if isinstance(default, bool) else default
    return f" (default: {shown})"
