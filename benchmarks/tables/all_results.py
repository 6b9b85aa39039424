"""Result files in one line each, and all rows of a file for the terminal.

    python -m benchmarks.tables.all_results            list the files of `benchmarks/results/` that have rows
    python -m benchmarks.tables.all_results NAME...    print all rows of these
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.tables.results import RESULTS, figure, machine, markdown_table, read

MODULES = Path(__file__).parents[1]


def cell(row: dict[str, Any]) -> list[str]:
    peers = ", ".join(f"{peer} {figure(value)}" for peer, value in row["peers"].items())
    ratio = f"{row['ratio']:.2f}" if row.get("ratio") is not None else ""
    return [row["name"], measured(row), peers, ratio]


def measured(row: dict[str, Any]) -> str:
    return figure(row["ours"]) + ("" if row["unit"] == "share" else f" {row['unit']}")


def command(name: str, result: dict[str, Any]) -> str:
    """The command that a result states; older ones: that of the longest module whose name begins the file's."""
    plain = name.replace("-", "_")
    modules = ["", *(path.stem for path in MODULES.glob("*.py") if plain.startswith(path.stem))]
    return str(result.get("command", f"python -m benchmarks.{max(modules, key=len)}"))


def all_rows(name: str) -> str:
    """The rows of one result file, with the command that makes it, its machine, commit and date."""
    result = read(name)
    made = f"`{command(name, result)}` on {machine(result)}; commit {result['commit'][:10]}, {result['date'][:10]}."
    table = markdown_table(["measurement", "ours", "peers", "ratio"], [cell(row) for row in result["rows"]])
    return f"{name}\n\n{made}\n\n{table}\n"


def results_with_rows() -> dict[str, dict[str, Any]]:
    results = {path.stem: read(path.stem) for path in sorted(RESULTS.glob("*.json"))}
    return {name: result for name, result in results.items() if "rows" in result}


def lowest_ratio(result: dict[str, Any]) -> float:
    """The lowest ratio of a result's rows, NaN where none has one."""
    return min((row["ratio"] for row in result["rows"] if row.get("ratio") is not None), default=math.nan)


def overview(results: dict[str, dict[str, Any]]) -> str:
    """Results in one line each: date, commit and lowest ratio."""
    rows = [[name, f"{result['date'][:10]}, {result['commit'][:7]}", f"{lowest_ratio(result):.2f}".replace("nan", "")]
            for name, result in results.items()]  # fmt: skip
    return markdown_table(["result", "date, commit", "lowest ratio"], rows)


def below() -> str:
    """The results in which a peer is faster, or a wanted figure was not reached, in some row."""
    return overview({name: result for name, result in results_with_rows().items() if lowest_ratio(result) < 0.995})


TABLES: dict[str, Callable[[], str]] = {"results": below}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="of a result; without names, all are listed")
    names = parser.parse_args().name
    if unknown := [name for name in names if name not in results_with_rows()]:
        sys.exit(f"There is no table of {', '.join(unknown)}. Without names, this command lists all.")
    if not names:
        print(overview(results_with_rows()))
    for name in names:
        print(all_rows(name))
