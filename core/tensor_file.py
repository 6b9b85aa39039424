"""Arrays with a JSON header in one ``.safetensors`` file that proves itself whole when it is read.

The metadata holds ``kind``, ``version``, ``header`` (JSON) and ``checksum``, the SHA-256 over header,
names, shapes and values. Nothing is allocated on the word of a header: safetensors checks all
offsets against the file's length first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from core.errors import ModelFileError
from core.storage import write_file

Tensors = Mapping[str, npt.NDArray[Any]]

WORDS: Final = {"model": "a LeafClinic model", "checkpoint": "a LeafClinic checkpoint"}


@final
@dataclass(frozen=True, slots=True)
class TensorFile:
    """What stood in a file: the header's JSON object and the arrays, in file order."""

    header: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def write_tensor_file(path: Path, kind: str, version: int, header: Mapping[str, Any], tensors: Tensors) -> None:
    """Write atomically. Raises StorageError."""
    dense = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    text = json.dumps(header, ensure_ascii=False, sort_keys=True)
    metadata = {"kind": kind, "version": str(version), "header": text, "checksum": _checksum(text, dense)}
    write_file(path, _with_metadata(save(dense), metadata))


def _with_metadata(file: bytes, metadata: Mapping[str, str]) -> bytes:
    """The file with metadata in the order given; safetensors itself writes them in another order every time, and two
    equal runs would leave files of different hashes."""
    end = 8 + int.from_bytes(file[:8], "little")
    head = json.dumps({"__metadata__": metadata, **json.loads(file[8:end])}, ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)  # the arrays begin at a multiple of 8
    return b"".join((len(head).to_bytes(8, "little"), head, memoryview(file)[end:]))


def read_tensor_file(path: Path, kind: str, version: int) -> TensorFile:
    """Read and check. Raises ModelFileError with a sentence where the file is not whole, not ours or too new."""
    if not path.is_file():
        raise ModelFileError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            _check_kind(path, metadata, kind, version)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise ModelFileError(
            f"{path} cannot be read as {WORDS[kind]}: it is cut, altered or of another format. "
            "Copy it again from where it came from."
        ) from error
    text = metadata.get("header", "")
    if metadata.get("checksum") != _checksum(text, tensors):
        raise ModelFileError(f"{path} was altered or damaged: its checksum does not fit. Copy it again.")
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ModelFileError(f"{path} has no readable header.")
    return TensorFile(header, tensors)


def _check_kind(path: Path, metadata: Mapping[str, str], kind: str, version: int) -> None:
    found = metadata.get("kind")
    if found != kind:
        what = WORDS.get(found or "", "a .safetensors file of another program")
        raise ModelFileError(f"{path} is {what}, not {WORDS[kind]}.")
    if metadata.get("version") != str(version):
        raise ModelFileError(
            f"{path} is {WORDS[kind]} of version {metadata.get('version')}; this program reads version {version}. "
            "Use the LeafClinic release that wrote it, or write it again."
        )


def _checksum(header: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(header.encode("utf-8"))
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()
