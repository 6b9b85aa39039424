"""Model files: weights, network, class names, preprocessing and evaluation figures in one file.

The header is checked against the weights; it is not trusted.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.data.dataset import clean_name
from core.diagnosis.features import FEATURES, find_nodes, read_statistics
from core.diagnosis.model_identity import KIND, ORIGIN, VERSION, require_model
from core.diagnosis.replay import REPLAY, read_replay
from core.diagnosis.spreads import SPREADS, read_spreads
from core.diagnosis.stored_weights import Stored, from_tensors, round_to_eight_bits, round_to_half, to_tensors
from core.diagnosis.thresholds import SCORES, SECTION, Thresholds
from core.diagnosis.training_photos import TrainingPhotos, checked_marks
from core.errors import DataError, ModelFileError
from core.graph import PHOTO, Graph, Node, from_dict, to_dict
from core.ops.builder import check, make_node
from core.ops.contract import Array, volume
from core.program import check_weights, fold_batch_norm, fold_weights
from core.schema import SchemaError, anything, divisor, listing, mapping, named, number, record, text, whole
from core.tensor_file import TensorFile, read_tensor_file, write_tensor_file

MAX_SIDE: Final = 4096
MAX_VALUES: Final = 1 << 27
"""Largest photo side and largest activation of one photo (512 MB): a crafted graph must not exhaust the memory."""

EXTRA: Final = "extra/"
"""Prefix of arrays that are not weights, such as feature statistics."""
LEARNED: Final = "learned_photos"
"""Name of the array of training photos, and of its entry in the header."""
LABELS: Final = "labels"
"""Name in the header of "multi"; a file without it predicts one class."""
VIEWS: Final = (1, 2)
"""Numbers of views that a prediction may average: the photo alone, or with its mirror image (left for right)."""
CLASS_TEMPERATURES: Final = "class_temperatures"
"""Name in the header; a file without it has one temperature."""
SAME: Final = ("temperature", "data_hash", "licence", "figures", "sections", "views", "offset")
"""Fields of `ModelFile` that the header has under their names; the last two may be missing."""
CALIBRATION: Final = "calibration"
"""Section with the reliability on validation photos."""
TEST: Final = "test"
"""Section with figures on test photos: rows of name, photos, accuracy and interval, by class and by part."""
DATA: Final = "data"
"""Section with sources, licences, split and known weaknesses, as sentences."""

HEADER: Final = record(
    {
        "graph": mapping, "classes": listing(text), "preprocessing": record({"square": whole}), "temperature": divisor,
        "data_hash": text, "licence": text, "figures": named(number), "sections": named(mapping),
    },
    {"views": whole, CLASS_TEMPERATURES: listing(divisor), "offset": number, LABELS: text,
     LEARNED: record({"whole": anything})},
)  # fmt: skip


def _interval(value: Any) -> None:
    if len(listing(number)(value)) != 2:
        raise SchemaError("it is no interval")


_ROW: Final = {"name": text, "photos": whole, "right": number, "interval": _interval}
SECTIONS: Final = record({}, {
    TEST: record({}, {"parts": listing(record(_ROW)), "macro_f1": number, "average_precision": number, "note": text,
                      "classes": listing(record({**_ROW, "precision": number, "f1": number}, {"predicted": whole}))}),
    DATA: record({}, {"sources": listing(text), "weaknesses": listing(text)}),
    CALIBRATION: record({"error": number}, {"chance": number}), ORIGIN: record({"name": text}),
})  # fmt: skip
"""Checks the sections that are shown as they are."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A trained network with everything needed to use it.

    weights: float32 by full parameter name, batch norm not folded; classes: names in the order of the logits;
    source_side: side in pixels of the square (`core.data.photo`) that is scaled to the network's input; temperature:
    divisor of the logits, unless there are class_temperatures, one for each class; offset: by which the largest logit
    is then reduced (`core.diagnosis.calibration.scale_logits`);
    figures: evaluation results by name; sections: JSON objects by name ("rejection"); extra: further arrays by name;
    half: filters and dense weights are stored in half precision, rounded to it by `in_bits`; steps: of weights that are
    stored in 8 bits, by full name; learned: the training photos, None if unknown; views: 2 if predictions and figures
    are means over photo and mirror image; multilabel: a photo may have several classes, each with a sigmoid and a
    threshold; name, date: see `core.diagnosis.model_identity`, "" if unknown.
    """

    graph: Graph
    weights: Mapping[str, Array]
    classes: tuple[str, ...]
    source_side: int
    temperature: float = 1.0
    data_hash: str = ""
    licence: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Array] = field(default_factory=dict)
    half: bool = False
    views: int = 1
    steps: Mapping[str, Array] = field(default_factory=dict)
    learned: TrainingPhotos | None = None
    class_temperatures: tuple[float, ...] = ()
    offset: float = 0.0
    name: str = ""
    date: str = ""
    multilabel: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the network's input in pixels."""
        height, width, _ = self.graph.photo_shape
        return height, width

    @property
    def parameters(self) -> int:
        return sum(array.size for array in self.weights.values())

    @property
    def thresholds(self) -> Thresholds | None:
        """Those of its section; None if it has none."""
        return Thresholds.from_section(self.sections.get(SECTION, {}), len(self.classes))

    @property
    def stored(self) -> Stored:
        return Stored(self.weights, self.half, self.steps)

    @property
    def stored_bytes(self) -> int:
        return sum(array.nbytes for array in (*to_tensors(self.stored).values(), *_other_arrays(self).values()))


def in_bits(model: ModelFile, bits: int) -> ModelFile:
    """The model with its filters and dense weights rounded to the 8, 16 or 32 bits in which its file will hold them.

    For 8 bits batch norm is folded first: the step of each output channel takes its scale along, so that nothing more
    is lost, and the file saves its parameters. Raises ModelFileError where a weight is too large for half precision.
    """
    if bits == 32:
        return replace(model, half=False, steps={})
    if bits == 16:
        stored = round_to_half(model.weights)
    else:
        stored = round_to_eight_bits(fold_weights(model.graph, model.weights))
        model = replace(model, graph=fold_batch_norm(model.graph))
    return replace(model, weights=stored.weights, half=stored.half, steps=stored.steps)


def write_model(path: Path, model: ModelFile) -> None:
    """Write atomically. Raises StorageError."""
    photo = model.graph.nodes[0]
    header = {
        "graph": to_dict(model.graph),
        "classes": list(model.classes),
        "preprocessing": {
            "square": model.source_side, "size": list(model.size), "mean": list(floats(photo.attributes["mean"])),
            "std": list(floats(photo.attributes["std"])), "layout": "NHWC", "colour": "RGB", "range": "0..1",
        },
        **{name: getattr(model, name) for name in SAME},
    }
    if model.multilabel:
        header[LABELS] = "multi"
    if model.class_temperatures:
        header[CLASS_TEMPERATURES] = list(model.class_temperatures)
    if model.learned is not None:
        header[LEARNED] = {"whole": model.learned.whole}
    arrays = {**to_tensors(model.stored), **{EXTRA + name: array for name, array in _other_arrays(model).items()}}
    labels = {"name": model.name, "date": model.date}
    write_tensor_file(path, KIND, VERSION, header, arrays, {label: text for label, text in labels.items() if text})


def _other_arrays(model: ModelFile) -> dict[str, Array]:
    return {**model.extra, **({} if model.learned is None else {LEARNED: model.learned.marks})}


def read_model(path: Path) -> ModelFile:
    """Read and check a model file or the best model of a run folder. Raises ModelFileError."""
    path = require_model(path)
    if path.suffix.lower() == ".onnx":
        raise ModelFileError(f"{path} is an ONNX file, which serves to diagnose, to evaluate and to start a training "
                             "from. Give the model file that it was exported from.")  # fmt: skip
    file = read_tensor_file(path, KIND, VERSION)
    try:
        return _checked(file)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} has an invalid header ({error}).") from error


def with_photo_side(graph: Graph, side: int) -> Graph:
    """The graph for photos of another side. Raises ModelFileError if a layer's weights depend on the size.

    Training crops zoom in, so leaves look larger in training than in use; a larger photo in use takes that back.
    Source: Touvron et al., "Fixing the train-test resolution discrepancy", 2019.
    """
    photo = graph.nodes[0]
    known: dict[str, Node] = {PHOTO: replace(photo, shape=(side, side, photo.shape[2]))}
    for node in graph.nodes[1:]:
        try:
            made = make_node(node.op, node.name, node.inputs, node.attributes, known)
        except ValueError as error:
            raise ModelFileError(f"{graph.name} does not take photos of {side} pixels: {error}") from error
        if [p.shape for p in made.parameters] != [p.shape for p in node.parameters]:
            raise ModelFileError(f"{graph.name} works on photos of {photo.shape[0]} pixels only (layer {node.name!r}).")
        known[node.name] = replace(made, parameters=node.parameters)
    return Graph(graph.name, tuple(known.values()), graph.output)


def check_classes(model: ModelFile, names: Iterable[str]) -> None:
    """Raise DataError if photos have classes that the model does not have."""
    if unknown := [name for name in names if name not in model.classes]:
        parts = {part for name in unknown for part in name.casefold().split("/")}  # a crop, or a condition without it
        near = [name for name in model.classes if not parts.isdisjoint(name.casefold().split("/"))] or model.classes
        shown, known = (textwrap.shorten(", ".join(some), 200) for some in (unknown, near))
        raise DataError(f"The model does not know {shown}. Correct the class names, or remove these photos. It knows "
                        f"{known}.")  # fmt: skip


def _checked(file: TensorFile) -> ModelFile:
    header = HEADER(file.header)
    SECTIONS(header["sections"])
    graph = check(from_dict(header["graph"]))
    classes = tuple(map(clean_name, header["classes"]))
    stored = from_tensors({n: a for n, a in file.tensors.items() if not n.startswith(EXTRA)})
    extra = {n.removeprefix(EXTRA): a for n, a in file.tensors.items() if n.startswith(EXTRA)}
    learned = _read_learned(header, extra.pop(LEARNED, None))
    _check_sizes(graph)
    _check_weights(graph, stored.weights)
    endless = [name for name, array in extra.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if endless:
        raise ModelFileError(f"The file contains values that are not finite: {', '.join(endless[:5])}.")
    if len(graph.node(graph.output).shape) != 1 or not len(set(classes)) == len(classes) == graph.classes:
        raise ModelFileError(f"The file names {len(set(classes))} classes, but its network has {graph.classes}.")
    thresholds = _check_knowledge(graph, header["sections"], extra)
    multilabel = header.get(LABELS) == "multi"
    if multilabel != bool(thresholds and thresholds.labels):
        raise ModelFileError("The file's thresholds are not those of its labels.")
    source_side = header["preprocessing"]["square"]
    if not 1 <= source_side <= MAX_SIDE:
        raise ModelFileError(f"The file states an invalid photo size: {source_side} pixels.")
    if (views := header.get("views", 1)) not in VIEWS:
        raise ModelFileError(f"The file states {views} views of a photo; only 1 or 2 are possible.")
    return ModelFile(
        graph, stored.weights, classes, source_side, extra=extra, half=stored.half,
        steps=stored.steps, learned=learned, class_temperatures=_read_class_temperatures(header, len(classes)),
        name=file.labels.get("name", ""), date=file.labels.get("date", ""), multilabel=multilabel,
        **{name: header[name] for name in SAME if name in header},
    )  # fmt: skip


def _check_knowledge(graph: Graph, sections: Mapping[str, Any], extra: Mapping[str, Array]) -> Thresholds | None:
    """Check thresholds, feature statistics and replay; returns the thresholds. Raises ModelFileError."""
    statistics, spreads, classes, nodes = read_statistics(extra), read_spreads(extra), graph.classes, find_nodes(graph)
    if statistics is None and any(name.startswith(FEATURES) for name in extra):
        raise ModelFileError("The file's feature statistics are incomplete or inconsistent.")
    if any(name.startswith(REPLAY) for name in extra) and read_replay(extra, statistics, classes) is None:
        raise ModelFileError("The file's feature replay is incomplete or does not match its classes.")
    if spreads is None and any(name.startswith(SPREADS) for name in extra):
        raise ModelFileError("The file's statistics of spreads are incomplete or inconsistent.")
    for found, names in ((statistics, nodes.names[:1]), (spreads, nodes.bottlenecks)):
        channels = sum(graph.node(name).shape[-1] for name in names)
        if found is not None and (not names or len(found.center) != channels):
            raise ModelFileError("The file's feature statistics belong to another network.")
    thresholds = Thresholds.from_section(sections.get(SECTION, {}), classes)
    if thresholds is None and SECTION in sections:
        raise ModelFileError("The file's thresholds are not valid.")
    if thresholds is not None and thresholds.score not in SCORES:
        raise ModelFileError(f"The file has thresholds of {thresholds.score!r}, which is not a known score.")
    needed = (statistics, spreads)[: SCORES.index(thresholds.score)] if thresholds is not None else ()
    if thresholds is not None and None in needed:
        raise ModelFileError(f"The file has thresholds of {thresholds.score!r} and no statistics of features.")
    return thresholds


def _read_class_temperatures(header: Mapping[str, Any], classes: int) -> tuple[float, ...]:
    found: tuple[float, ...] | None = header.get(CLASS_TEMPERATURES)
    if found is not None and len(found) != classes:
        raise ModelFileError(f"The file has temperatures of {len(found)} classes and {classes} classes.")
    return found or ()


def _read_learned(header: Mapping[str, Any], marks: Array | None) -> TrainingPhotos | None:
    if marks is None and LEARNED not in header:
        return None
    if marks is None or LEARNED not in header:
        raise ModelFileError("The file's record of its training photos is incomplete.")
    return checked_marks(marks, header[LEARNED]["whole"])


def _check_sizes(graph: Graph) -> None:
    if len(graph.photo_shape) != 3 or graph.photo_shape[2] not in (1, 3) or max(graph.photo_shape) > MAX_SIDE:
        raise ModelFileError(f"The network states an invalid photo shape: {graph.photo_shape}.")
    photo = graph.nodes[0].attributes
    mean, std, channels = floats(photo["mean"]), tuple(map(divisor, floats(photo["std"]))), graph.photo_shape[2]
    if len(mean) != channels or len(std) != channels or not all(map(math.isfinite, mean)):
        raise ModelFileError("The file's input normalization is not valid.")
    for node in graph.nodes:
        if volume(node.shape) > MAX_VALUES:
            raise ModelFileError(f"The layer {node.name!r} would need {volume(node.shape)} values per photo, which is "
                                 "too many.")


def _check_weights(graph: Graph, weights: Mapping[str, Array]) -> None:
    check_weights(weights, {name: parameter.shape for name, parameter in graph.parameters().items()})
    wrong = [name for name, array in weights.items() if array.dtype != np.float32 or not np.isfinite(array).all()]
    if wrong:
        raise ModelFileError(f"The weights do not fit the network: {wrong[0]} holds values that are not numbers, or is "
                             "not float32.")  # fmt: skip


def floats(value: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in value)
