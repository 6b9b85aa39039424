"""The tables of docs/experiments.md: what the five earlier works did and reported, beside our commands and figures."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.tables.results import figure, markdown_table, read
from core.ops.registry import ALGORITHM_ORDER, VENDOR_LIBRARIES

WORKS: Final[list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text("utf-8")
)["work"]  # fmt: skip
PLACE: Final = re.compile(r"{([^{}|]+)\|([^{}|]+)\|([^{}|]+)}")
TEACHING: Final = (*(f" {name}" for name in (*ALGORITHM_ORDER, *VENDOR_LIBRARIES)), ", constant")
"""Ends of the names of rows that measure an implementation for comparison, not our best."""
KERNELS: Final = ("kernels-h200", "cudnn_algorithms-nvidia-h200")
NEARLY: Final = 0.9
"""Rows from this share on are counted, not named."""
RANDOM: Final = re.compile(" (forward|backward_(input|weight))(?=, worst)")
"""The direction of the worst random shape of a family, of which only the smallest share is named."""
WANTED: Final = {"wanted", "border"}
"""Peers that are goals, not measurements."""


def find_row(file: str, name: str) -> dict[str, Any]:
    """The row of a result file, with its implementations' figures as `algorithms`. Raises KeyError."""
    results = read(file)
    for row in results["rows"]:
        if row["name"] == name:
            return {**row, "algorithms": results.get("algorithms", {}).get(name, {})}
    raise KeyError(f"{file}.json has no row {name!r}")


def look_up(file: str, name: str, column: str) -> str:
    row = find_row(file, name)
    return figure(row["ours"] if column == "ours" else {**row["algorithms"], **row["peers"]}[column])


def ours(experiment: dict[str, Any]) -> str:
    """Our figures with their places filled, and the remark."""
    filled = PLACE.sub(lambda place: look_up(place[1], place[2], place[3]), experiment.get("ours", ""))
    return ". ".join(part[0].upper() + part[1:] for part in (filled, experiment.get("note", "")) if part)


def work_table(work: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    above = ""
    for experiment in work["experiment"]:
        commands = ", ".join(f"`{command.removeprefix('python -m ')}`" for command in experiment["run"].split("; "))
        rows.append([experiment["name"], experiment["was"], ours(experiment), "" if commands == above else commands])
        above = commands
    table = markdown_table(["experiment", "the original", "here", "command"], rows)
    return f"{work['about']}\n\n{table.replace('--:', '---')}"


def measured_rows() -> Iterator[dict[str, Any]]:
    """Every row that the tables refer to and that has a library beside it, once; and all single kernels."""
    places = (PLACE.findall(one.get("ours", "")) for work in WORKS for one in work["experiment"])
    named = [(file, name) for found in places for file, name, _ in found]
    single = [(file, row["name"]) for file in KERNELS for row in read(file)["rows"]]
    for file, name in dict.fromkeys([*named, *single]):
        row = find_row(file, name)
        if row["peers"] and not WANTED & set(row["peers"]):
            yield row


def below_table() -> str:
    """The rows in which a library is faster than our best kernel with their share of its speed, smallest first."""
    known = (row for row in measured_rows() if not row["name"].endswith(TEACHING))
    behind = sorted((row for row in known if row["ratio"] < 1), key=lambda row: row["ratio"])
    named: dict[str, float] = {}
    for row in (row for row in behind if row["ratio"] < NEARLY):
        named.setdefault(RANDOM.sub("", row["name"]).replace(", median", ", random"), row["ratio"])
    more = sum(row["ratio"] >= NEARLY for row in behind)
    return f"{'; '.join(f'{name} {ratio:.2f}' for name, ratio in named.items())}; {more} more from {NEARLY} on."


TABLES: dict[str, Callable[[], str]] = {
    "experiments below": below_table,
    **{f"experiments {number}": partial(work_table, work) for number, work in enumerate(WORKS)},
}
