"""Every result file as a table, with the command that makes it, its machine, commit and date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.tables.results import RESULTS, figure, machine, markdown_table, read

MODULES = Path(__file__).parents[1]


def cell(row: dict[str, Any]) -> list[str]:
    unit = "" if row["unit"] == "share" else f" {row['unit']}"
    peers = ", ".join(f"{peer} {figure(value)}" for peer, value in row["peers"].items())
    ratio = f"{row['ratio']:.2f}" if row.get("ratio") is not None else ""
    return [row["name"], f"{figure(row['ours'])}{unit}", peers, ratio]


def command(name: str) -> str:
    """The module that wrote a result: the longest module whose name begins the file's."""
    plain = name.replace("-", "_")
    modules = [path.stem for path in MODULES.glob("*.py") if plain.startswith(path.stem)]
    return f"`python -m benchmarks.{max(modules, key=len)}`" if modules else ""


def all_results() -> str:
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        result = read(path.stem)
        if "rows" not in result:
            continue
        made = f"{command(path.stem)} on {machine(result)}; commit {result['commit'][:10]}, {result['date'][:10]}."
        table = markdown_table(["measurement", "ours", "peers", "ratio"], [cell(row) for row in result["rows"]])
        parts.append(f"### {path.stem}\n\n{made}\n\n{table}")
    return "\n\n".join(parts)


TABLES: dict[str, Callable[[], str]] = {"results": all_results}
