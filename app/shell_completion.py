"""Shell completion: a script for bash, zsh or tcsh that completes commands, options, values and file names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import shtab

from core.config import settings
from core.training.presets import PRESETS

FILES: Final = ("data", "out", "start", "cache", "field", "teacher")
"""Settings that are paths; of other options the metavar says it."""
PATH_NAMES: Final = ("FILE", "FOLDER", "MODEL", "OUT", "PATH", "PHOTO", "RUN")


def write_script(commands: Mapping[str, tuple[str, str]], shell: str) -> str:
    """Return the script for `shell`; `commands` names the module of each command and its purpose."""
    parser = argparse.ArgumentParser("leafclinic")
    parser.add_argument("--version", action="store_true", help="print the version")
    subparsers = parser.add_subparsers()
    for name, (module, purpose) in commands.items():
        made = import_module(module).make_parser()
        subparsers.add_parser(name, parents=[made], add_help=False, help=purpose)
    _add_values(parser)
    return str(shtab.complete(parser, shell))


def _add_values(parser: argparse.ArgumentParser) -> None:
    """Declare the values of each option: the choices of a setting, or a file."""
    known = settings()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for nested in action.choices.values():
                _add_values(nested)
        elif action.nargs == 0:
            continue
        elif action.dest == "preset":
            action.choices = tuple(PRESETS)
        elif action.dest in known and known[action.dest][1].choices:
            action.choices = known[action.dest][1].choices
        elif action.dest in FILES or str(action.metavar).startswith(PATH_NAMES):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
