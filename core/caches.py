"""``leafclinic cache``: shows, limits and clears the caches of decoded photos and compiled kernels."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from core.command_line import as_command, read_alone
from core.data.cache_limit import empty_cache, list_caches, read_limit, write_limit
from core.errors import EXIT_CODES, EXIT_DONE, InputError
from core.user_cache import kernel_bytes, remove_old_kernels, user_cache_folder


@as_command
def main(argv: Sequence[str]) -> int:
    arguments = read_alone(make_parser(), argv)
    if arguments.limit is not None and not 0 <= arguments.limit < 1e6:
        raise InputError("--limit: a number of gigabytes from 0 to 1,000,000 is needed.")
    base = Path(arguments.folder).absolute() if arguments.folder else user_cache_folder()
    if arguments.limit is not None:
        write_limit(base, int(arguments.limit * 1e9))
    busy = clear_caches(base) if arguments.clear else []
    print(describe_json(base) if arguments.json else describe_text(base))
    if busy:
        sys.stderr.write(f"{', '.join(busy)} was kept: another process is writing to it, or it is another user's. "
                         "Clear it when that process has ended.\n")
    return EXIT_DONE


def clear_caches(base: Path) -> list[str]:
    """Remove all decoded photos in `base` and old compiled kernels; returns the names of caches in use."""
    remove_old_kernels()
    return [use.home.name for use in list_caches(base) if not empty_cache(use.home)]


def describe_json(base: Path) -> str:
    caches = [{"folder": str(use.home), "bytes": use.size, "used": use.used} for use in list_caches(base)]
    return json.dumps({"folder": str(base), "limit": read_limit(base), "caches": caches, "kernels": kernel_bytes()})


def describe_text(base: Path) -> str:
    caches = list_caches(base)
    lines = [f"{use.size / 1e9:9.3f} GB  {time.strftime('%Y-%m-%d', time.localtime(use.used))}  {use.home.name}"
             for use in caches]  # fmt: skip
    total = sum(use.size for use in caches)
    return "\n".join([f"Decoded photos in {base}:", *lines, f"{total / 1e9:9.3f} GB of at most "
                      f"{read_limit(base) / 1e9:g} GB. The least recently used cache is deleted first.",
                      f"{kernel_bytes() / 1e9:9.3f} GB  compiled kernels"])  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "leafclinic cache", allow_abbrev=False, epilog=EXIT_CODES,
        description="Show the caches of decoded photos, limit their size, or clear them. Your photos are not touched.",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, metavar="GB", help="largest total size of the caches, from now on")
    parser.add_argument(
        "--clear", action="store_true",
        help="remove decoded photos that are not being written, and compiled kernels older than a day",
    )  # fmt: skip
    parser.add_argument("--folder", default="", help="cache folder, as given with --cache (default: the user's cache "
                                                     "folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
