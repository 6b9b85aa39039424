"""What candidates took on one GPU: per case the fastest configuration of each, measured in one run by `lab tune`.

A table belongs to a GPU by name and compute capability; no other GPU uses it. Shipped tables are in `tuned/`, the
user's own in the cache folder under a name that also has the driver's version and a hash of the kernels' sources. Where
both have a case, the user's counts. ADR 31 has the rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, is_dataclass
from math import inf, isfinite, log2
from pathlib import Path
from typing import Any, Final, final

from core.errors import InputError
from core.gpu.compilation.compiler import source_hash
from core.gpu.hardware import Identity
from core.schema import SchemaError, anything, count, listing, maybe, named, number, parse_json, record, text
from core.storage import write_file
from core.user_cache import make_private_folder, user_cache_folder

SHIPPED: Final = Path(__file__).parent / "tuned"

FAR: Final = 1.0
"""Distance from which on a measured case says nothing about another: four times the pixels, or twice the depth."""


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A case of the table: what is computed and in which arithmetic, and the size of the product.

    The size is pixels of the output of all images, its channels, and the depth of the sum.
    """

    kind: str
    size: tuple[int, int, int]

    def distance(self, other: Key) -> float:
        """How different two sizes are; channels decide most."""
        ours, theirs = self.size, other.size
        pixels, columns, depth = (abs(log2(max(a, 1) / max(b, 1))) for a, b in zip(ours, theirs, strict=True))
        return 2 * columns + depth + 0.5 * pixels


MEASURED, CONVERTED, NEARBY = "measured", "converted", "measured nearby"
"""Where a cost of the table is from; nearby: a case of other size, at most `FAR` away."""


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's fastest configuration in a case, as JSON has it, and its microseconds.

    `source` CONVERTED: from the tiles of an earlier version, which kept no comparable times; microseconds are then
    estimates, infinite for a candidate that was slower than another. `lab tune` measures such cases again.
    """

    configuration: Any
    microseconds: float
    source: str = MEASURED


Entries = dict[Key, Mapping[str, Measured]]


def kernels_hash() -> str:
    """What the kernels' sources are known by in tables."""
    return source_hash()[:16]


def file_name(gpu: Identity) -> str:
    """A GPU as file names have it, such as ``nvidia-h200-sm90``."""
    plain = "".join(c for c in "-".join(gpu.name.lower().split()) if c.isalnum() or c == "-")
    return f"{plain}-sm{gpu.capability[0]}{gpu.capability[1]}"


@final
@dataclass(frozen=True, slots=True)
class Table:
    """Measured cases; without any, every cost is estimated (`core.gpu.cost_model`)."""

    entries: Entries = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    """One sentence for each file that the entries are from."""
    _by_kind: dict[str, list[Key]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.entries:
            self._by_kind.setdefault(key.kind, []).append(key)

    def near(self, key: Key) -> Iterator[tuple[Key, Mapping[str, Measured]]]:
        """Measured cases of the same kind, nearest first."""
        found = sorted((key.distance(other), other.size, other) for other in self._by_kind.get(key.kind, ()))
        yield from ((other, self.entries[other]) for distance, _, other in found if distance <= FAR)

    @property
    def fingerprint(self) -> str:
        """What decides about kernels, in eight characters; "none" without entries."""
        told = sorted((key.kind, key.size, str(rows)) for key, rows in self.entries.items())
        return hashlib.sha256(str(told).encode()).hexdigest()[:8] if told else "none"

    def with_entries(self, more: Mapping[Key, Mapping[str, Measured]]) -> Table:
        return Table({**self.entries, **more}, self.origins)


EMPTY: Final = Table()


def encode(configuration: Any) -> Any:
    """A configuration as JSON has it: lists of numbers."""
    if is_dataclass(configuration):
        return [encode(value) for value in astuple(configuration)]  # type: ignore[arg-type]
    if isinstance(configuration, tuple):
        return [encode(value) for value in configuration]
    return configuration


def choose_measured(
    table: Table, key: Key, choices: Mapping[str, Sequence[Any]]
) -> tuple[dict[str, tuple[Any, float]], str]:
    """(configuration and microseconds of each candidate, source) from the nearest case that has all of them.

    Times of a case with more or fewer pixels are scaled by the pixels. Without such a case microseconds are 0 and the
    source is empty: configurations are then the nearest measured ones, for candidates that have one.
    """
    partly: dict[str, tuple[Any, float]] = {}
    for near, rows in table.near(key):
        found = {}
        for name, configurations in choices.items():
            chosen = [c for c in configurations if name in rows and encode(c) == rows[name].configuration]
            if chosen:
                found[name] = chosen[0], rows[name].microseconds * key.size[0] / near.size[0]
        if len(found) == len(choices):
            converted = any(rows[name].source == CONVERTED for name in choices)
            return found, CONVERTED if converted else MEASURED if near == key else NEARBY
        partly = {name: (chosen, 0.0) for name, (chosen, _) in found.items()} | partly
    return partly, ""


READ: Final = record({
    "gpu": text, "capability": listing(count), "driver": text, "kernels": text, "command": text, "commit": text,
    "cases": listing(record({
        "kind": text, "size": listing(count),
        "candidates": named(record(
            {"configuration": anything, "microseconds": maybe(number, inf)}, {"source": text}
        )),
    })),
})  # fmt: skip


def read_table(path: Path) -> tuple[dict[str, Any], Entries]:
    """(what the file says about itself, entries). Raises InputError where the file is no tuning table."""
    try:
        found = READ(parse_json(path.read_bytes()))
        entries: Entries = {}
        for case in found.pop("cases"):
            if len(case["size"]) != 3:
                raise SchemaError(f"size: {case['size']} is no three numbers")
            entries[Key(case["kind"], tuple(case["size"]))] = {
                name: Measured(row["configuration"], row["microseconds"], row.get("source", MEASURED))
                for name, row in case["candidates"].items()
            }
    except (SchemaError, OSError) as error:
        raise InputError(
            f"{path} is not a tuning table: {error}. Remove the file, then measure again with: leafclinic lab tune"
        ) from error
    return found, entries


def write_table(path: Path, gpu: Identity, entries: Entries, command: str, commit: str = "") -> None:
    """Replace the file, one case a line; whoever reads it meanwhile has the old one or the new one."""
    head = {
        "gpu": gpu.name, "capability": gpu.capability, "driver": gpu.driver, "kernels": kernels_hash(),
        "command": command, "commit": commit,
    }  # fmt: skip
    lines = [
        json.dumps({"kind": key.kind, "size": key.size, "candidates": {
            name: _plain(row) for name, row in sorted(entries[key].items())
        }})
        for key in sorted(entries, key=lambda key: (key.kind, key.size))
    ]  # fmt: skip
    body = ",\n".join(lines)
    write_file(path, f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n{body}\n ]\n}}\n')


def _plain(row: Measured) -> dict[str, Any]:
    """A candidate's entry as JSON has it."""
    time = round(row.microseconds, 2) if isfinite(row.microseconds) else None
    source = {} if row.source == MEASURED else {"source": row.source}
    return {"configuration": row.configuration, "microseconds": time, **source}


def shipped_path(gpu: Identity) -> Path:
    return SHIPPED / f"{file_name(gpu)}.json"


def user_path(gpu: Identity) -> Path:
    """The user's table of this GPU, driver and these kernels; it need not be there."""
    key = hashlib.sha256(f"{gpu.driver} {kernels_hash()}".encode()).hexdigest()[:12]
    return user_cache_folder() / "tuning" / f"{file_name(gpu)}-{key}.json"


def make_user_path(gpu: Identity) -> Path:
    """The same, in a folder that is there."""
    make_private_folder(user_path(gpu).parent)
    return user_path(gpu)


def load_table(gpu: Identity) -> Table:
    """All measurements of a GPU, shipped ones first. Raises InputError where a file is damaged."""
    entries: Entries = {}
    origins = []
    for path, whose in ((shipped_path(gpu), "shipped"), (user_path(gpu), "your own")):
        if path.exists():
            head, found = read_table(path)
            if (head["gpu"], tuple(head["capability"])) != (gpu.name, gpu.capability):
                continue
            entries |= found
            same = head["kernels"] == kernels_hash() and head["driver"] == gpu.driver
            changed = "" if same else ", with another driver or other kernels"
            origins.append(f"{len(found)} cases measured on the {gpu.name} ({whose}{changed})")
    return Table(entries, tuple(origins))
