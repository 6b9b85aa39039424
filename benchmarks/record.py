"""Results of a benchmark as a table and as ``benchmarks/results/NAME-MACHINE.json``."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite.binding

from core.cores import usable_cores
from core.cpu.instruction_set import INSTRUCTION_SETS, choose_isa
from core.gpu.hardware import NO_DRIVER, has_driver

FOLDER = Path(__file__).parent / "results"
WIDEST = next(iter(INSTRUCTION_SETS))
PACKAGES = ("numpy", "numba", "llvmlite", "numba-cuda", "torch", "onnxruntime")


@dataclass(frozen=True)
class Row:
    """One measurement. `ours`, `peers` and `floor` (the least possible time) are in `unit`.

    `ratio` is over the best peer, above 1 when ours is better, NaN without a peer; where rounds were measured
    interleaved it is the median of the rounds' ratios and given from outside.
    """

    name: str
    ours: float
    peers: Mapping[str, float]
    unit: str
    ratio: float = math.nan
    floor: float | None = None


def make_row(name: str, ours: float, peers: Mapping[str, float], unit: str) -> Row:
    """A row whose ratio is that of the values; times ("ms", "s") are better when low, rates when high."""
    values = peers.values()
    if not values:
        return Row(name, ours, peers, unit)
    return Row(name, ours, peers, unit, min(values) / ours if unit in ("ms", "s") else ours / max(values))


def write_results(
    name: str, rows: Sequence[Row], machine: str = "", order: Sequence[str] = (), **more: Any
) -> Path:
    """Print the table, write the file and give its path. `machine`: a short name, by default from the processor.

    order: names of rows as they shall stand in the file. Where it is given, rows of the file before that this run did
    not measure are kept, each with its own commit and date; else the file is this run's alone.
    """
    machine = machine or machine_name()
    path = FOLDER / f"{name}-{machine}.json"
    print_table(rows)
    found = versions()
    # JSON knows no NaN: a row without peers has no ratio
    written = [{k: v for k, v in asdict(row).items() if v is not None and v == v} for row in rows]
    if order and path.exists():
        written += kept_rows(json.loads(path.read_text("utf-8")), {row.name for row in rows}, found)
        written.sort(key=lambda row: order.index(row["name"]) if row["name"] in order else len(order))
    result = {
        "benchmark": name,
        "machine": {"name": machine, "processor": processor(), "cores": usable_cores(), "system": platform.platform()},
        "versions": found,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command(),
        **more,
        "rows": written,
    }
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def kept_rows(old: Mapping[str, Any], measured: Collection[str], versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of an earlier result that are not `measured` again, as they are written beside the new ones.

    Each carries the commit and the date that it was made with, and its versions where they are not today's, so that
    none passes for newer than it is.
    """
    made = {"commit": old["commit"], "date": old["date"]}
    if old["versions"] != versions:
        made["versions"] = old["versions"]
    return [made | row for row in old["rows"] if row["name"] not in measured]


def print_table(rows: Sequence[Row]) -> None:
    """The rows as text."""
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        peers = "   ".join(f"{peer} {value:.4g}" for peer, value in row.peers.items())
        ratio = f"{row.ratio:5.2f}x" if row.peers else ""
        print(f"{row.name:{width}}  ours {row.ours:9.4g} {row.unit:8} {peers:40} {ratio}")


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_name() -> str:
    """A short name for file names, such as ``amd-epyc-2`` or ``amd-epyc-avx2-2``: processor, vector instructions where
    they are less than AVX-512 (clouds call processors of both kinds by one name), cores."""
    words = processor().lower().replace("(r)", "").replace("(tm)", "").split()
    level = choose_isa("", llvmlite.binding.get_host_cpu_features()).name
    less = [] if level == WIDEST else [level]
    return "-".join([*(w for w in words[:3] if w.isalnum()), *less, str(usable_cores())])


def gpu_name() -> str:
    """The same of the first GPU, such as ``nvidia-h200``, without opening it."""
    if not has_driver():
        sys.exit(NO_DRIVER)
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return names[0].strip().lower().replace(" ", "-")


def versions() -> dict[str, str]:
    """Python and the packages that a figure hangs on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def command() -> str:
    """The command line of this process: of an absolute path only what is below LEAFCLINIC_DATA, or its name."""
    data, words = os.environ.get("LEAFCLINIC_DATA") or os.devnull, ["python"]
    for path in map(Path, sys.orig_argv[1:]):
        inside = path.is_relative_to(data)
        words.append(f"$LEAFCLINIC_DATA/{path.relative_to(data)}" if inside else
                     shlex.quote(path.name if path.is_absolute() else str(path)))  # fmt: skip
    return " ".join(words)


def commit() -> str:
    """Hash of the commit, with "+changes" where the sources differ from it."""
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "-uno", "core", "benchmarks/*.py"], capture_output=True, text=True, check=False
    )
    return (run.stdout.strip() or "unknown") + ("+changes" if dirty.stdout.strip() else "")
