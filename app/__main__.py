"""The command `leafclinic`, also `python -m app`: runs a subcommand, or opens the window if none is named."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from core.errors import EXIT_DONE, EXIT_WRONG_INPUT

COMMANDS: Final = {
    "train": ("core.train", "train a model on a folder of photos"),
    "evaluate": ("core.evaluate", "evaluate a model on labelled photos"),
    "diagnose": ("core.diagnose", "diagnose photos"),
    "adapt": ("core.adapt", "adapt a model to one place from a few photos"),
    "review": ("core.review", "find wrong labels, and photos worth labelling next"),
    "export": ("core.export", "write a model as ONNX"),
    "lab": ("core.lab", "benchmark kernels and networks on this machine"),
    "cache": ("core.caches", "show, limit or clear the caches of decoded photos"),
    "doctor": ("core.doctor", "check what this machine can run and what is missing"),
}
"""Subcommands: the module whose `main` runs it, and its line in the help. Open a folder of that name as ./train."""

CURSOR: Final = "libxcb-cursor.so.0"
"""The library that Qt needs on X11 and that many systems do not install."""
NO_LIBRARY: Final = "The window cannot start: {}. As root, `make packages` installs system libraries (Debian, Ubuntu)."


def main(arguments: Sequence[str] | None = None) -> int:
    """Start what the command line asks for; Qt is imported only for the window."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in COMMANDS:
        from app.processes.entry import limit_threads

        limit_threads(given[0])
        module, _ = COMMANDS[given[0]]
        return int(import_module(module).main(given[1:]))
    if given[:1] == ["--process"]:
        from app.processes import entry

        return entry.run(given[1:])
    options = _parser().parse_args(given)
    if options.install_desktop or options.print_completion:
        from app.installation import install, write_script
        from core.command_line import run_command

        def print_script(_: Sequence[str]) -> int:
            sys.stdout.write(write_script(COMMANDS, options.print_completion))
            return EXIT_DONE

        return run_command(print_script if options.print_completion else lambda _: install(), ())
    problem = no_display(os.environ)
    if len(options.paths) == 1 and options.paths[0].isidentifier() and not os.path.exists(options.paths[0]):
        problem = f"There is no command, file or folder {options.paths[0]}. leafclinic --help lists the commands."
    if not problem:
        from app.processes.entry import start_ahead

        try:
            start_ahead()  # before the imports of the window
            from app.application import run
        except ImportError as error:
            problem = NO_LIBRARY.format(error)
    if problem:
        sys.stderr.write(problem + "\n")
        return EXIT_WRONG_INPUT
    return run(options.paths)


def no_display(environment: Mapping[str, str]) -> str:
    """Why Qt cannot open a window here ("" if it can). Qt itself would end the process without a message."""
    if not sys.platform.startswith("linux") or environment.get("QT_QPA_PLATFORM") or environment.get("WAYLAND_DISPLAY"):
        return ""
    if not environment.get("DISPLAY"):
        return ("There is no display: neither DISPLAY nor WAYLAND_DISPLAY is set. Commands that need no window: "
                f"leafclinic {', '.join(COMMANDS)}.")  # fmt: skip
    try:
        ctypes.CDLL(CURSOR)
    except OSError:
        return NO_LIBRARY.format(f"{CURSOR} is missing")
    return ""


def _parser() -> argparse.ArgumentParser:
    from core import __version__

    lines = "\n".join(f"  {name:10} {purpose}" for name, (_, purpose) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="leafclinic", usage="leafclinic [PATH ...] | leafclinic COMMAND [option ...]",
        description="Learns leaf diseases and diagnoses photos. Without a command it opens the window.",
        epilog=f"commands (each with --help):\n{lines}", formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a folder of photos to open, or photos to diagnose")
    parser.add_argument("--install-desktop", action="store_true", help="add LeafClinic to the desktop menu")
    parser.add_argument("--print-completion", metavar="SHELL", choices=("bash", "zsh", "tcsh"),
                        help="print a script that completes commands and options in this shell")
    parser.add_argument("--version", action="version", version=f"LeafClinic {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
