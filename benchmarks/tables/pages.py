"""Which page shows which table, and replacing the tables in place.

A table is the text between ``<!-- NAME -->`` and ``<!-- /NAME -->``; `TABLES` says how each is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.tables import all_results, diagnosis, engine, experiments, kernels, measurements, scaling

ROOT = Path(__file__).parents[2]
MODULES = (engine, diagnosis, kernels, all_results, experiments, scaling, measurements)
TABLES: Mapping[str, Callable[[], str]] = {name: made for module in MODULES for name, made in module.TABLES.items()}
BLOCK = re.compile(r"(<!-- (?P<name>[\w ]+) -->\n)(.*?)(<!-- /(?P=name) -->)", re.DOTALL)


def pages() -> list[Path]:
    """README, every page of docs and every model card that has a generated table."""
    folders = (ROOT / "docs", ROOT / "resources" / "models")
    found = [ROOT / "README.md", *(page for folder in folders for page in sorted(folder.glob("*.md")))]
    return [page for page in found if BLOCK.search(page.read_text("utf-8"))]


def fill(text: str) -> str:
    """A page with its tables made again. Raises KeyError for a name that `TABLES` does not have."""
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block['name']]()}\n{block[4]}", text)


def generated() -> dict[Path, str]:
    """The present text of every generated page."""
    return {page: fill(page.read_text("utf-8")) for page in pages()}


def outdated() -> list[str]:
    """Pages whose text on disk is not what the results say, relative to the repository."""
    return [
        str(page.relative_to(ROOT)) for page, text in generated().items()
        if not page.exists() or page.read_text("utf-8") != text
    ]


def write_pages() -> None:
    for page, text in generated().items():
        page.write_text(text, encoding="utf-8")
