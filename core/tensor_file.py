"""Arrays with a JSON header in one ``.safetensors`` file with a checksum, which is verified at reading.

The metadata has ``kind``, ``version``, ``header`` (JSON) and ``checksum``, the SHA-256 over header, names, shapes and
values, and labels such as ``name``, which may change and are not part of the checksum. safetensors checks all offsets
against the file's length before it allocates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core.errors import ModelFileError
from core.schema import SchemaError, mapping, parse_json
from core.storage import write_file
from core.text import json_text

Tensors = Mapping[str, npt.NDArray[Any]]

METADATA: Final = "__metadata__"
REQUIRED: Final = ("kind", "version", "header", "checksum")
"""Required metadata; all other metadata are labels."""
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

WORDS: Final = {
    "model": "a LeafClinic model", "checkpoint": "a LeafClinic checkpoint",
    "segmentation": "LeafClinic's segmentation network",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The header's JSON object, the arrays in file order, and the labels."""

    header: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]
    labels: dict[str, str]


def write_tensor_file(
    path: Path, kind: str, version: int, header: Mapping[str, Any], tensors: Tensors,
    labels: Mapping[str, str] = NO_LABELS,
) -> None:  # fmt: skip
    """Write atomically. Raises StorageError."""
    dense = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    text = json_text(header, sort_keys=True)
    metadata = {"kind": kind, "version": str(version), **labels, "header": text, "checksum": _checksum(text, dense)}
    write_file(path, _with_metadata(save(dense), metadata))


def _with_metadata(file: bytes, metadata: Mapping[str, str]) -> bytes:
    """Return the file with sorted metadata: safetensors writes them in random order, so equal runs would differ."""
    end = 8 + int.from_bytes(file[:8], "little")
    arrays = {name: place for name, place in json.loads(file[8:end]).items() if name != METADATA}
    head = json.dumps({METADATA: dict(sorted(metadata.items())), **arrays}, ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)  # the arrays begin at a multiple of 8
    return b"".join((len(head).to_bytes(8, "little"), head, memoryview(file)[end:]))


def read_tensor_file(path: Path, kind: str, version: int) -> TensorFile:
    """Read and check. Raises ModelFileError with a sentence if the file is damaged, not ours or too new."""
    metadata, tensors = _read(path, kind, version, arrays=True)
    text = metadata.get("header", "")
    if metadata.get("checksum") != _checksum(text, tensors):
        raise ModelFileError(f"{path} is damaged: its checksum does not match. Copy it again.")
    try:
        labels = {name: text for name, text in metadata.items() if name not in REQUIRED}
        return TensorFile(mapping(parse_json(text)), tensors, labels)
    except SchemaError as error:
        raise ModelFileError(f"{path} has an invalid header ({error}).") from error


def read_metadata(path: Path, kind: str, version: int) -> dict[str, str]:
    """Return all metadata without reading the arrays, so without a check of the checksum. Raises ModelFileError."""
    return _read(path, kind, version, arrays=False)[0]


def _read(path: Path, kind: str, version: int, arrays: bool) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    if not path.is_file():
        raise ModelFileError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            _check_kind(path, metadata, kind, version)
            return metadata, {name: file.get_tensor(name) for name in (file.keys() if arrays else ())}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(
            f"{path} cannot be read as {WORDS[kind]}: it is incomplete, damaged or in another format. Copy it again "
            "from its source."
        ) from error


def write_labels(path: Path, kind: str, version: int, labels: Mapping[str, str]) -> None:
    """Add labels to a file; nothing else in it changes. Raises ModelFileError and StorageError."""
    metadata = read_metadata(path, kind, version)
    write_file(path, _with_metadata(path.read_bytes(), {**metadata, **labels}))


def _check_kind(path: Path, metadata: Mapping[str, str], kind: str, version: int) -> None:
    found = metadata.get("kind")
    if found != kind:
        what = WORDS.get(found or "", "a .safetensors file of another program")
        raise ModelFileError(f"{path} is {what}, not {WORDS[kind]}.")
    if metadata.get("version") != str(version):
        raise ModelFileError(
            f"{path} is {WORDS[kind]} of version {metadata.get('version')}, but this program reads version {version}. "
            "Use the LeafClinic release that wrote it, or create it again."
        )


def _checksum(header: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(header.encode("utf-8"))
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()
