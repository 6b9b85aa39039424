"""Tuning tables: the measured times of candidates on one GPU, with the fastest configuration of each, per case.

A table belongs to a GPU by name and compute capability; no other GPU uses it. Shipped tables are in `tuned/`. The
user's own is in the cache folder, under a name that also depends on the driver's version and a hash of the kernels'
sources; it takes precedence. ADR 31 has the rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from typing import Any, Final

from core.errors import InputError
from core.gpu.compilation.compiler import source_hash
from core.gpu.hardware import Identity
from core.schema import SchemaError, anything, count, listing, named, number, parse_json, record, text
from core.storage import write_file
from core.user_cache import make_private_folder, user_cache_folder

SHIPPED: Final = Path(__file__).parent / "tuned"

FAR: Final = 1.0
"""Largest distance at which a measured case is used for another: four times the pixels, or twice the depth."""


@dataclass(frozen=True, slots=True)
class Key:
    """A case: what is computed in which arithmetic, and its size.

    The size is the pixels of the output of all images, its channels, and the depth of the sum.
    """

    kind: str
    size: tuple[int, int, int]

    def distance(self, other: Key) -> float:
        """Weighted difference of the logarithms of the sizes; channels have most weight."""
        pairs = zip(self.size, other.size, strict=True)
        pixels, columns, depth = (abs(log2(max(a, 1) / max(b, 1))) for a, b in pairs)
        return 2 * columns + depth + 0.5 * pixels


MEASURED, NEARBY = "measured", "measured nearby"
"""Sources of a cost; nearby: a case of another size, at most `FAR` away."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's fastest configuration in a case, encoded for JSON, and its microseconds."""

    configuration: Any
    microseconds: float


Entries = dict[Key, Mapping[str, Measured]]


def file_name(gpu: Identity) -> str:
    """Name of the GPU for use in file names, such as ``nvidia-h200-sm90``."""
    plain = "".join(c for c in "-".join(gpu.name.lower().split()) if c.isalnum() or c == "-")
    return f"{plain}-sm{gpu.capability[0]}{gpu.capability[1]}"


@dataclass(frozen=True, slots=True)
class Table:
    """Measured cases; without any, all costs are estimated (`core.gpu.cost_model`)."""

    entries: Entries = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    """A sentence for each file that the entries were read from."""
    _by_kind: dict[str, list[Key]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.entries:
            self._by_kind.setdefault(key.kind, []).append(key)

    def near(self, key: Key) -> Iterator[tuple[Key, Mapping[str, Measured]]]:
        """Measured cases of the same kind, nearest first."""
        nearest = sorted((key.distance(other), other.size, other) for other in self._by_kind.get(key.kind, ()))
        yield from ((other, self.entries[other]) for distance, _, other in nearest if distance <= FAR)

    @property
    def fingerprint(self) -> str:
        """Hash of the entries in eight characters; "none" without entries."""
        entries = sorted((key.kind, key.size, str(measured)) for key, measured in self.entries.items())
        return hashlib.sha256(str(entries).encode()).hexdigest()[:8] if entries else "none"

    def with_entries(self, more: Mapping[Key, Mapping[str, Measured]]) -> Table:
        return Table({**self.entries, **more}, self.origins)


EMPTY: Final = Table()


def encode(configuration: Any) -> Any:
    """Encode a configuration for JSON as lists of numbers."""
    if isinstance(configuration, tuple):
        return [encode(value) for value in configuration]
    return configuration


def choose_measured(
    table: Table, key: Key, choices: Mapping[str, Sequence[Any]]
) -> tuple[dict[str, tuple[Any, float]], str]:
    """(configuration and microseconds of each candidate, source) from the nearest case that has all of them.

    Times are scaled by the number of pixels. Without such a case the source is empty, microseconds are 0, and the
    configurations are the nearest measured ones of the candidates that have one.
    """
    partly: dict[str, tuple[Any, float]] = {}
    for near, entry in table.near(key):
        measured = {
            name: (configuration, entry[name].microseconds * key.size[0] / near.size[0])
            for name, configurations in choices.items() if name in entry
            for configuration in configurations if encode(configuration) == entry[name].configuration
        }  # fmt: skip
        if len(measured) == len(choices):
            return measured, MEASURED if near == key else NEARBY
        partly = {name: (chosen, 0.0) for name, (chosen, _) in measured.items()} | partly
    return partly, ""


READ: Final = record({
    "gpu": text, "capability": listing(count), "driver": text, "kernels": text, "command": text, "commit": text,
    "cases": listing(record({
        "kind": text, "size": listing(count),
        "candidates": named(record({"configuration": anything, "microseconds": number})),
    })),
})  # fmt: skip


def read_table(path: Path) -> tuple[dict[str, Any], Entries]:
    """(header, entries) of a file. Raises InputError if the file is not a tuning table."""
    try:
        head = READ(parse_json(path.read_bytes()))
        entries: Entries = {}
        for case in head.pop("cases"):
            if len(case["size"]) != 3 or 0 in case["size"]:
                raise SchemaError(f"size: {case['size']} must be three numbers above 0")
            candidates = case["candidates"].items()
            entries[Key(case["kind"], case["size"])] = {name: Measured(**found) for name, found in candidates}
    except (SchemaError, OSError) as error:
        raise InputError(
            f"{path} is not a tuning table: {error}. Remove the file, then measure again with: leafclinic lab tune"
        ) from error
    return head, entries


def write_table(path: Path, gpu: Identity, entries: Entries, command: str, commit: str = "") -> None:
    """Replace the file atomically; it has one case per line."""
    head = {
        "gpu": gpu.name, "capability": gpu.capability, "driver": gpu.driver, "kernels": source_hash()[:16],
        "command": command, "commit": commit,
    }  # fmt: skip
    lines = [
        json.dumps({"kind": key.kind, "size": key.size, "candidates": {
            name: {"configuration": one.configuration, "microseconds": round(one.microseconds, 2)}
            for name, one in sorted(entries[key].items())
        }})
        for key in sorted(entries, key=lambda key: (key.kind, key.size))
    ]  # fmt: skip
    body = ",\n".join(lines)
    write_file(path, f'{json.dumps(head, indent=1)[:-2]},\n "cases": [\n{body}\n ]\n}}\n')


def resume_table(path: Path, gpu: Identity) -> Entries:
    """The entries of an interrupted table, if the file exists. Raises InputError if they are not of these kernels."""
    if not path.exists():
        return {}
    head, entries = read_table(path)
    if not _is_current(head, gpu):
        raise InputError(f"{path} was measured with other kernels, another driver or on another GPU. Write to a new "
                         "file, which may replace it when it is complete.")  # fmt: skip
    return entries


def _is_current(head: Mapping[str, Any], gpu: Identity) -> bool:
    measured = head["gpu"], head["capability"], head["driver"], head["kernels"]
    return measured == (gpu.name, gpu.capability, gpu.driver, source_hash()[:16])


def shipped_path(gpu: Identity) -> Path:
    return SHIPPED / f"{file_name(gpu)}.json"


def user_path(gpu: Identity) -> Path:
    """Path of the user's table of this GPU, driver and these kernels, which may not exist."""
    key = hashlib.sha256(f"{gpu.driver} {source_hash()[:16]}".encode()).hexdigest()[:12]
    return user_cache_folder() / "tuning" / f"{file_name(gpu)}-{key}.json"


def make_user_path(gpu: Identity) -> Path:
    """The same path; its folder is created."""
    make_private_folder(user_path(gpu).parent)
    return user_path(gpu)


def load_table(gpu: Identity) -> Table:
    """All measurements of a GPU. Raises InputError if a file is damaged."""
    entries: Entries = {}
    origins = []
    for path, origin in ((shipped_path(gpu), "shipped"), (user_path(gpu), "your own")):
        if path.exists():
            head, measured = read_table(path)
            if (head["gpu"], head["capability"]) != (gpu.name, gpu.capability):
                continue
            entries |= measured
            changed = "" if _is_current(head, gpu) else ", with another driver or other kernels"
            origins.append(f"{len(measured)} cases measured on the {gpu.name} ({origin}{changed})")
    return Table(entries, tuple(origins))
