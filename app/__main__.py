"""`leafclinic` and `python -m app`: the window, one of its processes, or the desktop entry."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


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
    from app.application import run

    return run(options.paths)


def _parser() -> argparse.ArgumentParser:
    from core import __version__

    parser = argparse.ArgumentParser(prog="leafclinic", description="Learns leaf diseases and diagnoses photos.")
    parser.add_argument("paths", nargs="*", help="a folder of photos to open, or photos to diagnose")
    parser.add_argument("--install-desktop", action="store_true", help="put LeafClinic into the desktop's menu")
    parser.add_argument("--version", action="version", version=f"LeafClinic {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
