"""ONNX metadata of a network: preprocessing, class names, temperature, thresholds of labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from core.errors import ModelFileError
from core.graph import Graph
from core.ops.contract import Arrays
from core.schema import Reader, SchemaError, divisor, listing, number, parse_json, record, text

PREPROCESSING: Final = "preprocessing"
CLASSES: Final = "class_names"
TEMPERATURE: Final = "temperature"
LABELS: Final = "labels"
"""Key of the threshold of each label, if a photo may have several; the outputs are then probabilities."""


@final
@dataclass(frozen=True, slots=True)
class Imported:
    """A network from an ONNX file.

    graph ends with its logits; weights are float32 by full name; classes is empty and temperature 1 if the file does
    not state them; preprocessed: whether mean and deviation are the file's own; labels: the threshold of each label,
    empty if a photo has one class.
    """

    graph: Graph
    weights: Arrays
    classes: tuple[str, ...]
    temperature: float
    preprocessed: bool
    labels: tuple[float, ...] = ()


def to_metadata(graph: Graph, classes: tuple[str, ...], temperature: float) -> dict[str, str]:
    """Return the metadata of a file; `input` is ``(rgb / 255 - mean) / std``, channels first."""
    photo = graph.nodes[0].attributes
    height, width, channels = graph.photo_shape
    described = {
        "input": "photo", "layout": "NCHW", "colours": "RGB" if channels == 3 else "grey", "height": height,
        "width": width, "scale": 1 / 255, "mean": photo["mean"], "std": photo["std"],
    }  # fmt: skip
    return {
        PREPROCESSING: json.dumps(described),
        CLASSES: json.dumps(classes, ensure_ascii=False),
        TEMPERATURE: repr(float(temperature)),
    }


def read_statistics(metadata: Mapping[str, str]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and deviation, or None if the file does not state them."""
    found = _read(metadata, PREPROCESSING, record({"mean": listing(number), "std": listing(divisor)}))
    return None if found is None else (found["mean"], found["std"])


def read_classes(metadata: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Return the class names, empty if the file does not state them."""
    names: tuple[str, ...] = _read(metadata, CLASSES, listing(text)) or ()
    if names and not len(set(names)) == len(names) == count:
        raise ModelFileError(f"This file names {len(set(names))} classes, but its network has {count}.")
    return names


def read_temperature(metadata: Mapping[str, str]) -> float:
    """Return the temperature of the calibrated softmax, 1 if the file does not state it."""
    temperature = _read(metadata, TEMPERATURE, divisor)
    return 1.0 if temperature is None else float(temperature)


def read_labels(metadata: Mapping[str, str], count: int) -> tuple[float, ...]:
    """Return the threshold of each label, empty if a photo has one class."""
    found: tuple[float, ...] | None = _read(metadata, LABELS, listing(number))
    if found is not None and (len(found) != count or not all(0 <= value <= 1 for value in found)):
        raise ModelFileError("The thresholds of the labels in this file are not valid.")
    return found or ()


def _read(metadata: Mapping[str, str], key: str, reader: Reader) -> Any:
    """Return the value of a key, None if it is missing. Raises ModelFileError if it is not valid."""
    try:
        return reader(parse_json(metadata[key])) if key in metadata else None
    except SchemaError as error:
        raise ModelFileError(f"The metadata {key!r} in this file is not valid ({error}).") from error
