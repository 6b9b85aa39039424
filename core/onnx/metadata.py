"""What a network needs besides its graph, as ONNX metadata: preprocessing, class names, temperature."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from core.errors import ModelFileError
from core.graph import Graph
from core.ops.contract import Arrays

PREPROCESSING: Final = "preprocessing"
CLASSES: Final = "class_names"
TEMPERATURE: Final = "temperature"
LABELS: Final = "labels"
"""The threshold of each label, where a photo may have several; the outputs are probabilities then."""


@final
@dataclass(frozen=True, slots=True)
class Imported:
    """A network from an ONNX file.

    graph ends with its logits; weights are float32 by full name; classes is empty and temperature 1
    where the file does not state them; preprocessed states whether mean and deviation are the file's own; labels: the
    threshold of each label, none where a photo has one class.
    """

    graph: Graph
    weights: Arrays
    classes: tuple[str, ...]
    temperature: float
    preprocessed: bool
    labels: tuple[float, ...] = ()


def to_metadata(graph: Graph, classes: tuple[str, ...], temperature: float) -> dict[str, str]:
    """Metadata for a file; `input` is ``(rgb / 255 - mean) / std``, channels first."""
    photo = graph.nodes[0].attributes
    height, width, channels = graph.photo_shape
    described = {
        "input": "photo",
        "layout": "NCHW",
        "colours": "RGB" if channels == 3 else "grey",
        "height": height,
        "width": width,
        "scale": 1 / 255,
        "mean": photo["mean"],
        "std": photo["std"],
    }
    return {
        PREPROCESSING: json.dumps(described),
        CLASSES: json.dumps(classes, ensure_ascii=False),
        TEMPERATURE: repr(float(temperature)),
    }


def read_statistics(metadata: Mapping[str, str]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and deviation, or None where the file does not state them. Raises ModelFileError where it is not valid."""
    if PREPROCESSING not in metadata:
        return None
    described = _load(metadata, PREPROCESSING)
    try:
        mean, std = (tuple(float(v) for v in described[key]) for key in ("mean", "std"))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"The preprocessing in this file is not valid ({error}).") from error
    return mean, std


def read_classes(metadata: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Class names, or none where the file does not state them."""
    if CLASSES not in metadata:
        return ()
    names = _load(metadata, CLASSES)
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ModelFileError("The class names in this file are not valid.")
    if names and not len(set(names)) == len(names) == count:
        raise ModelFileError(f"This file names {len(set(names))} classes, but its network has {count}.")
    return tuple(names)


def read_temperature(metadata: Mapping[str, str]) -> float:
    """Temperature of the calibrated softmax; 1 where the file does not state them."""
    try:
        temperature = float(metadata.get(TEMPERATURE, "1"))
    except ValueError as error:
        raise ModelFileError(f"The temperature in this file is not valid ({error}).") from error
    if not math.isfinite(temperature) or temperature <= 0:
        raise ModelFileError(f"The temperature in this file is {temperature}; it must be above 0.")
    return temperature


def read_labels(metadata: Mapping[str, str], count: int) -> tuple[float, ...]:
    """The threshold of each label, or none. Raises ModelFileError where they are not valid."""
    if LABELS not in metadata:
        return ()
    found = _load(metadata, LABELS)
    sound = isinstance(found, list) and len(found) == count and all(type(v) is float and 0 <= v <= 1 for v in found)
    if not sound:
        raise ModelFileError("The thresholds of the labels in this file are not valid.")
    return tuple(found)


def _load(metadata: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(metadata[key])
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"The {key.replace('_', ' ')} in this file cannot be read ({error}).") from error
