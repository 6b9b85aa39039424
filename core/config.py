"""All settings of a run, one row per field: the command line, the form in the window, the file in
the run folder and the list of problems all come from these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields
from dataclasses import field as make_field
from typing import Any, Final, final

from core.errors import ConfigError, Problem

MODELS: Final = (
    "squeezenet1_0",
    "squeezenet1_1",
    "squeezenet1_0_bn",
    "squeezenet1_1_bn",
    "squeezenet1_1_wide_bn",
    "mobilenetv2",
    "mobilenetv2_wide",
    "mobilenetv3_small",
    "mobilenetv3_large",
    "cnn",
    "mlp",
)


OPTION_NAMES: Final = {"start": "from"}
"""Fields whose option on the command line has another name; `from` is a word of Python's own."""


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """What a form needs to know about one field. `low` and `high` are inclusive bounds; `zero`: what 0 means."""

    group: str
    label: str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    expert: bool = True
    zero: str = ""


def _row(default: Any, group: str, label: str, help: str, **more: Any) -> Any:
    return make_field(default=default, metadata={"setting": Setting(group, label, help, **more)})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one training run. Units stand in the help texts."""

    data: str = _row("", "data", "Photos", "folder of photos, or CSV manifest", expert=False)
    where: tuple[str, ...] = _row((), "data", "Only rows", "manifest rows to use, as column=value")
    label: str = _row("", "data", "Label column", "manifest column that names the class (default crop/condition)")
    split: str = _row("", "data", "Split file", "split to use, as an earlier run wrote it")
    validation: float = _row(0.15, "data", "Validation share", "share of groups for validation", low=0.01, high=0.5)
    test: float = _row(0.15, "data", "Test share", "share of groups for the test", low=0.0, high=0.5)
    field: str = _row("", "data", "Field photos", "folder or manifest of own field photos: a second test, told apart")
    cache: str = _row("", "data", "Cache folder", "where decoded photos are kept (default: the user's cache folder)")

    preset: str = _row("", "network", "Preset", "named recipe; options given as well win over it", expert=False)
    model: str = _row("squeezenet1_1", "network", "Network", "which network", choices=MODELS, expert=False)
    image_size: int = _row(224, "network", "Photo size", "side of the network's input, pixels", low=16, high=1024)
    use_size: int = _row(0, "network", "Photo size in use", "side in validation and use, pixels; 0: as in training",
                         low=0, high=1024, zero="as in training")
    start: str = _row("", "network", "Start from", "model file or ONNX file whose weights to start from")
    start_colours: str = _row("auto", "network", "Colours of the start", "how photos were prepared for an ONNX file",
                              choices=("auto", "imagenet", "tensorflow", "caffe"))
    train_layers: str = _row("all", "network", "Layers to train", "which layers learn when starting from weights",
                             choices=("all", "last", "head"))
    dropout: float = _row(0.5, "network", "Dropout", "share of the classifier's inputs dropped", low=0.0, high=0.95)

    epochs: int = _row(30, "training", "Epochs", "passes over the training photos", low=1, high=100000, expert=False)
    minutes: float = _row(0.0, "training", "Minutes", "stop after so many, the learning rate having fallen; 0: never",
                          low=0.0, high=1e6, expert=False, zero="no limit")
    batch_size: int = _row(32, "training", "Batch size", "photos a step; 0 or auto takes what fits", low=0, high=8192,
                           zero="what fits")
    accumulate: int = _row(
        1, "training", "Accumulate", "parts a batch is split into, with the same result", low=1, high=1024
    )
    seed: int = _row(0, "training", "Seed", "number all randomness follows from", low=0, high=2**31 - 1)
    validate_every: int = _row(1, "training", "Validate every", "epochs between two validations; the last is always "
                               "validated", low=1, high=100000)
    patience: int = _row(0, "training", "Patience", "stop after so many epochs without a better validation, 0 never",
                         low=0, high=100000)

    optimizer: str = _row("adamw", "optimizer", "Optimizer", "update rule", choices=("sgd", "adam", "adamw"))
    learning_rate: float = _row(1e-3, "optimizer", "Learning rate", "highest learning rate", low=1e-8, high=10.0)
    momentum: float = _row(0.9, "optimizer", "Momentum", "momentum of sgd", low=0.0, high=0.9999)
    nesterov: bool = _row(True, "optimizer", "Nesterov", "look ahead with the momentum (sgd)")
    beta1: float = _row(0.9, "optimizer", "Beta 1", "decay of adam's first moment", low=0.0, high=0.9999)
    beta2: float = _row(0.999, "optimizer", "Beta 2", "decay of adam's second moment", low=0.0, high=0.999999)
    epsilon: float = _row(1e-8, "optimizer", "Epsilon", "adam's guard against division by zero", low=1e-16, high=1.0)
    weight_decay: float = _row(1e-4, "optimizer", "Weight decay", "pull of the weights towards zero", low=0.0, high=1.0)
    clip_norm: float = _row(
        0.0, "optimizer", "Clip norm", "largest norm of the gradient, 0 for no limit", low=0.0, high=1e6
    )
    average: float = _row(
        0.0, "optimizer", "Average", "decay of the running average of weights, 0 for none", low=0.0, high=0.99999
    )
    schedule: str = _row("one_cycle", "optimizer", "Schedule", "course of the learning rate",
                         choices=("constant", "step", "inverse", "cosine", "one_cycle"))
    warmup: float = _row(0.2, "optimizer", "Warm-up", "share of the steps with rising learning rate", low=0.0, high=0.9)
    decay: float = _row(
        0.1, "optimizer", "Decay", "factor of the step schedule, or decay per step of inverse", low=0.0, high=1.0
    )
    decay_epochs: int = _row(
        10, "optimizer", "Decay epochs", "epochs between two drops of the step schedule", low=1, high=100000
    )

    label_smoothing: float = _row(
        0.0, "loss", "Label smoothing", "share of certainty given to the other classes", low=0.0, high=0.5
    )
    class_weights: str = _row("none", "loss", "Class weights", "weight of rare classes in the loss",
                              choices=("none", "balanced", "sqrt"))
    sampling: str = _row("natural", "loss", "Sampling", "how often photos of rare classes are drawn",
                         choices=("natural", "sqrt", "balanced"))

    teacher: tuple[str, ...] = _row((), "loss", "Teachers", "model files or runs whose answers are learned")
    teacher_share: float = _row(0.9, "loss", "Teachers' share", "share of the teachers' mean answer in what a photo "
                                "teaches; the rest is its label", low=0.01, high=1.0)

    augment: str = _row("standard", "augmentation", "Augmentation", "how much photos are varied",
                        choices=("none", "light", "standard", "soft", "strong"), expert=False)

    augment_background: float = _row(0.0, "augmentation", "Other backgrounds", "share of training leaves that are set "
                                     "on another photo's ground", low=0.0, high=1.0)
    mix: float = _row(0.0, "augmentation", "Mixed photos", "share of training photos that are mixed with another, as a "
                      "whole or in a box; they teach both labels", low=0.0, high=1.0)

    device: str = _row("auto", "device", "Device", "where to train", choices=("auto", "cpu", "cuda"), expert=False)
    precision: str = _row(
        "float32", "device", "Precision", "arithmetic of the convolutions", choices=("float32", "tf32", "mixed")
    )
    algorithm: str = _row("auto", "device", "Algorithm", "kernels by name, or auto")
    threads: int = _row(0, "device", "Threads", "CPU threads, 0 for all cores", low=0, high=1024)
    stream_photos: bool = _row(
        False, "device", "Stream photos", "send photos to the GPU batch by batch, even if they fit there at once"
    )
    verify: bool = _row(False, "device", "Verify", "run the reference beside every kernel and compare (slow)")

    name: str = _row("", "run", "Model name", "name of the model (default: the photos' folder and the date)",
                     expert=False)
    out: str = _row("", "run", "Run folder", "folder to write (default: runs/<time>-<model>)")
    leaf_tests: bool = _row(
        True, "run", "Test the leaf", "test at the end whether the leaf is read: border, other backgrounds, class maps"
    )
    checkpoint_seconds: float = _row(
        60.0, "run", "Checkpoint every", "seconds between two checkpoints within an epoch", low=0.1, high=1e6
    )
    time_every: int = _row(
        0, "run", "Time kernels", "steps between two kernel timings, 0 for as many as cost under 1 %", low=0, high=10**9
    )


def settings() -> dict[str, tuple[Field[Any], Setting]]:
    """Field name to (dataclass field, its row), in order."""
    return {f.name: (f, f.metadata["setting"]) for f in fields(RunConfig)}


def problems(config: RunConfig) -> list[Problem]:
    """Everything wrong with the values themselves, all at once; an empty list is a sound configuration."""
    found = []
    for name, (_, row) in settings().items():
        value = getattr(config, name)
        if row.choices and value not in row.choices:
            found.append(Problem(name, f"{value!r} is not one of {', '.join(row.choices)}."))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if value != value:
                found.append(Problem(name, "is not a number."))
            elif row.low is not None and value < row.low:
                found.append(Problem(name, f"{value:g} is too small; the least is {row.low:g}."))
            elif row.high is not None and value > row.high:
                found.append(Problem(name, f"{value:g} is too large; the most is {row.high:g}."))
    if config.validation + config.test >= 0.9:
        found.append(Problem("test", "validation and test together leave too few photos for training."))
    if config.accumulate > 0 and config.batch_size % config.accumulate:
        found.append(Problem("accumulate", f"does not divide the batch size {config.batch_size}."))
    if config.train_layers != "all" and not config.start:
        found.append(Problem("train_layers", "needs weights to start from; name a model or ONNX file with --from."))
    found += [Problem("where", f"{w!r} is not of the form column=value.") for w in config.where if "=" not in w]
    return found


def to_dict(config: RunConfig) -> dict[str, Any]:
    """Plain values, for JSON."""
    return asdict(config)


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """A configuration from plain values, such as a TOML file's. Raises ConfigError listing all problems."""
    found = []
    known = settings()
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            found.append(Problem(name, "there is no such option."))
            continue
        default = known[name][0].default
        if isinstance(default, tuple) and isinstance(value, list | tuple):
            value = tuple(str(v) for v in value)
        elif isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        elif type(value) is not type(default):
            found.append(Problem(name, f"{value!r} is not {_kind(default)}."))
            continue
        chosen[name] = value
    config = RunConfig(**chosen)
    found += problems(config)
    if found:
        raise ConfigError(found)
    return config


def _kind(default: Any) -> str:
    names: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(type(default), "a list of texts")
