"""Index of a photo cache: file (path, size, times) -> content hash -> slot, or the reason why there is none."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.data.array_file import read_arrays, write_arrays
from core.ops.contract import Array

VERSION: Final = 2
"""Version of the decoding: caches of another version are not used."""
NO_PHOTO: Final = -1
KEEPS_CHANGE_TIME: Final = os.name != "nt"
"""Whether ``st_ctime_ns`` is the time of the last change, which programs cannot set. On Windows it is the time of
creation."""
SAMPLE: Final = 4096
"""Bytes at the beginning, middle and end of a file that identify its content on Windows."""


def file_key(path: str, file: str, state: os.stat_result) -> bytes:
    """16 bytes that change when the file does. `path` names it in the dataset, `file` for the operating system."""
    facts = f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ctime_ns}\0{state.st_ino}"
    sample = b"" if KEEPS_CHANGE_TIME else read_sample(file, state.st_size)
    return blake2b(facts.encode(errors="surrogateescape") + b"\0" + sample, digest_size=16).digest()


def current_key(path: str) -> str:
    """The key of a file as it is now; "" if it cannot be read."""
    try:
        return file_key(path, path, os.stat(path)).hex()
    except OSError:
        return ""


def read_sample(file: str, size: int) -> bytes:
    """Three parts of a file. Raises OSError."""
    with open(file, "rb") as opened:
        parts = []
        for at in (0, size // 2, max(size - SAMPLE, 0)):
            opened.seek(at)
            parts.append(opened.read(SAMPLE))
    return b"".join(parts)


@dataclass(slots=True)
class CacheIndex:
    """The index of a photo cache.

    photos: name of the file with the pixels; files: file key to content key; slots: content key to
    slot, or NO_PHOTO; facts: for each slot width and height of the file's photo and when it was taken;
    reasons: content key to why it is no photo."""

    photos: str
    files: dict[bytes, bytes] = field(default_factory=dict)
    slots: dict[bytes, int] = field(default_factory=dict)
    reasons: dict[bytes, str] = field(default_factory=dict)
    facts: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def used(self) -> int:
        return len(self.facts)


def read_index(path: Path, side: int) -> CacheIndex | None:
    """Read the index; None if there is no valid one, so that the cache is rebuilt."""
    arrays = read_arrays(path)
    head = {} if arrays is None else json.loads(arrays["head"].tobytes())
    if arrays is None or (head["version"], head["side"]) != (VERSION, side):
        return None
    index = CacheIndex(head["photos"])
    contents = [row.tobytes() for row in arrays["contents"]]
    index.slots = dict(zip(contents, arrays["slots"].tolist(), strict=True))
    index.facts = [(int(width), int(height), int(taken)) for width, height, taken in arrays["facts"]]
    index.reasons = {bytes.fromhex(key): reason for key, reason in head["reasons"].items()}
    files = [row.tobytes() for row in arrays["files"]]
    index.files = dict(zip(files, (contents[at] for at in arrays["content_of"]), strict=True))
    return index


def write_index(path: Path, index: CacheIndex, side: int) -> None:
    """Replace the index on disk atomically. Raises StorageError."""
    place = {key: at for at, key in enumerate(index.slots)}
    head: dict[str, Any] = {
        "version": VERSION,
        "side": side,
        "photos": index.photos,
        "reasons": {key.hex(): reason for key, reason in index.reasons.items()},
    }
    content_of = (place[key] for key in index.files.values())
    arrays = {
        "head": np.frombuffer(json.dumps(head).encode(), np.uint8),
        "files": _keys(index.files, 16),
        "content_of": np.fromiter(content_of, np.int64, len(index.files)),
        "facts": np.array(index.facts, np.int64).reshape(-1, 3),
        "contents": _keys(index.slots, 32),
        "slots": np.fromiter(index.slots.values(), np.int64, len(index.slots)),
    }
    write_arrays(path, arrays)


def _keys(keyed: dict[bytes, Any], width: int) -> Array:
    return np.frombuffer(b"".join(keyed), np.uint8).reshape(-1, width)
