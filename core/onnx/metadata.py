"""ONNX metadata of a network: preprocessing, class names, temperature, thresholds of labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import ModelFileError
from core.graph import Graph
from core.ops.contract import Arrays
from core.schema import Reader, SchemaError, divisor, listing, number, parse_json, record, text, whole

PREPROCESSING: Final = "preprocessing"
CLASSES: Final = "class_names"
TEMPERATURE: Final = "temperature"
CLASS_TEMPERATURES: Final = "class_temperatures"
OFFSET: Final = "offset"
VIEWS: Final = "views"
SQUARE: Final = "square"
LABELS: Final = "labels"
"""Key of the threshold of each label, if a photo may have several; the outputs are then probabilities."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A network from an ONNX file.

    graph ends with its logits; weights are float32 by full name; classes is empty and temperature 1 if the file does
    not state them; preprocessed: whether mean and deviation are the file's own; labels: the threshold of each label,
    empty if a photo has one class; class_temperatures, offset, views, square: as in
    `core.diagnosis.model_file.ModelFile`, whose source_side is square, or 0 if the file does not state it.
    """

    graph: Graph
    weights: Arrays
    classes: tuple[str, ...]
    temperature: float
    preprocessed: bool
    labels: tuple[float, ...] = ()
    class_temperatures: tuple[float, ...] = ()
    offset: float = 0.0
    views: int = 1
    square: int = 0


def to_metadata(graph: Graph, classes: tuple[str, ...], temperature: float) -> dict[str, str]:
    """Return the metadata of a file; `input` is ``(rgb / 255 - mean) / std``, channels first."""
    photo = graph.nodes[0].attributes
    height, width, channels = graph.photo_shape
    described = {
        "input": "photo", "layout": "NCHW", "colours": "RGB" if channels == 3 else "grey", "height": height,
        "width": width, "scale": 1 / 255, "mean": photo["mean"], "std": photo["std"],
    }  # fmt: skip
    return {PREPROCESSING: json.dumps(described), CLASSES: json.dumps(classes, ensure_ascii=False),
            TEMPERATURE: repr(float(temperature))}  # fmt: skip


def read_statistics(metadata: Mapping[str, str]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and deviation, or None if the file does not state them."""
    found = _read(metadata, PREPROCESSING, record({"mean": listing(number), "std": listing(divisor)}))
    return None if found is None else (found["mean"], found["std"])


def read_use(metadata: Mapping[str, str], count: int, sigmoid: bool) -> dict[str, Any]:
    """Return the fields of `Imported` that state how the outputs are used. Raises ModelFileError.

    After a sigmoid, and alone, an output is a label, which needs a probability of 0.5 if the file has no thresholds.
    """
    names: tuple[str, ...] = _read(metadata, CLASSES, listing(text)) or ()
    if names and not len(set(names)) == len(names) == count:
        raise ModelFileError(f"This file names {len(set(names))} classes, but its network has {count}.")
    labels = _read_numbers(metadata, LABELS, number, count) or (0.5,) * count * (sigmoid or count == 1)
    return {
        "classes": names, "temperature": _read(metadata, TEMPERATURE, divisor) or 1.0, "labels": labels,
        "views": _read(metadata, VIEWS, whole) or 1,
        "class_temperatures": _read_numbers(metadata, CLASS_TEMPERATURES, divisor, count),
        "offset": _read(metadata, OFFSET, number) or 0.0, "square": _read(metadata, SQUARE, whole) or 0,
    }  # fmt: skip


def _read_numbers(metadata: Mapping[str, str], key: str, item: Reader, count: int) -> tuple[float, ...]:
    found: tuple[float, ...] | None = _read(metadata, key, listing(item))
    if found is not None and (len(found) != count or key == LABELS and not all(0 <= value <= 1 for value in found)):
        raise ModelFileError(f"The metadata {key!r} in this file is not a valid number for each class.")
    return found or ()


def _read(metadata: Mapping[str, str], key: str, reader: Reader) -> Any:
    """Return the value of a key, None if it is missing. Raises ModelFileError if it is not valid."""
    try:
        return reader(parse_json(metadata[key])) if key in metadata else None
    except SchemaError as error:
        raise ModelFileError(f"The metadata {key!r} in this file is not valid ({error}).") from error
