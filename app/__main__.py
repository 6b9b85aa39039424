"""`leafclinic` and `python -m app`: the window, one of its processes, or the desktop entry."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from core.errors import EXIT_WRONG_INPUT

CURSOR: Final = "libxcb-cursor.so.0"
"""Of all libraries that Qt needs on X11 the one that systems come without."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Start what the command line asks for; Qt is imported only for the window."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--process"]:
        from app.processes import entry

        return entry.run(given[1:])
    options = _parser().parse_args(given)
    if options.install_desktop:
        from app.desktop_entry import install

        return install()
    missing = no_display(os.environ)
    if missing:
        sys.stderr.write(missing + "\n")
        return EXIT_WRONG_INPUT
    from app.application import run

    return run(options.paths)


def no_display(environment: Mapping[str, str]) -> str:
    """Why Qt could open no window here (it would end the process without a word that helps); "" where it can."""
    if not sys.platform.startswith("linux") or environment.get("QT_QPA_PLATFORM"):
        return ""
    if environment.get("WAYLAND_DISPLAY"):
        return ""
    if not environment.get("DISPLAY"):
        return ("There is no display here: neither DISPLAY nor WAYLAND_DISPLAY is set. Without a window there are "
                "python -m core.train, core.evaluate and core.diagnose.")  # fmt: skip
    try:
        ctypes.CDLL(CURSOR)
    except OSError:
        return (f"The window needs the system library {CURSOR}. As root: apt-get install libxcb-cursor0, or "
                "make packages.")  # fmt: skip
    return ""


def _parser() -> argparse.ArgumentParser:
    from core import __version__

    parser = argparse.ArgumentParser(prog="leafclinic", description="Learns leaf diseases and diagnoses photos.")
    parser.add_argument("paths", nargs="*", help="a folder of photos to open, or photos to diagnose")
    parser.add_argument("--install-desktop", action="store_true", help="put LeafClinic into the desktop's menu")
    parser.add_argument("--version", action="version", version=f"LeafClinic {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
