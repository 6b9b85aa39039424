"""All settings of a run, one row per field: source of options, form, run file and validation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields
from dataclasses import field as make_field
from typing import Any, Final

from core.errors import ConfigError, Problem

MODELS: Final = (
    "squeezenet1_0", "squeezenet1_1", "squeezenet1_0_bn", "squeezenet1_1_bn", "squeezenet1_1_wide_bn",
    "squeezenet1_0_bypass", "squeezenet1_0_complex_bypass", "squeezenet1_1_bypass", "squeezenet1_1_complex_bypass",
    "alexnet", "mobilenetv2", "mobilenetv2_wide", "mobilenetv3_small", "mobilenetv3_large", "cnn", "mlp",
)

OPTIMIZERS: Final = ("sgd", "adam", "adamw")

AUGMENTATIONS: Final = {
    "none": "photos are used as they are",
    "light": "mirrored, turned by quarters, slightly cropped, rotated and recoloured",
    "standard": "mirrored, turned by quarters, cropped, rotated and recoloured; some are blurred",
    "soft": "as standard, but every second photo is blurred",
    "strong": "strongly cropped, rotated and recoloured; some are blurred, every second one has a hidden square",
}
"""Levels of augmentation and what each does; `core.data.augment` has their ranges."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Description of a field. low, high: inclusive bounds; zero: meaning of 0, also below low; meanings: of choices."""

    group: str
    label: str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    meanings: Mapping[str, str] = make_field(default_factory=dict)
    expert: bool = True
    zero: str = ""


KINDS: Final[Mapping[type, str]] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list of texts",
}
"""Names of the types of values, for messages."""


def _row(default: Any, group: str, label: str, help: str, **more: Any) -> Any:
    return make_field(default=default, metadata={"setting": Setting(group, label, help, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of one training run; the help texts name the units."""

    data: str = _row("", "data", "Photos", "folder of photos, or CSV manifest", expert=False)
    where: tuple[str, ...] = _row((), "data", "Only rows", "use only manifest rows with column=value")
    label: str = _row("", "data", "Label column", "manifest column that names the class (default crop/condition)")
    labels: str = _row("auto", "data", "Labels per photo",
                       "single: one class; multi: each label in a class name such as scab+rust or scab;rust, "
                       "diagnosed separately; auto: multi if one of these labels is itself the name of a class",
                       choices=("auto", "single", "multi"))
    split: str = _row("", "data", "Split file", "split.csv of an earlier run to reuse")
    validation: float = _row(0.15, "data", "Validation share",
                             "fraction of the photo groups for validation", low=0.01, high=0.5)
    test: float = _row(0.15, "data", "Test share", "fraction of the photo groups for the test", low=0.0, high=0.5)
    field: str = _row("", "data", "Field photos",
                      "folder or manifest of your own field photos, evaluated as a separate test")
    cache: str = _row("", "data", "Cache folder", "folder for decoded photos (default: the user's cache folder)")

    preset: str = _row("", "network", "Preset", "named set of settings; single settings override it")
    model: str = _row("squeezenet1_1", "network", "Network",
                      "architecture of the network: small ones are fast, large ones usually more accurate",
                      choices=MODELS, expert=False)
    image_size: int = _row(0, "network", "Photo size",
                           "side of the network input in pixels; 0: of the preset or the pretrained model, or 224",
                           low=16, high=1024, zero="automatic")
    use_size: int = _row(0, "network", "Evaluation size",
                         "side of the network input in validation and diagnosis, in pixels; 0: as in training",
                         low=0, high=1024, zero="as in training")
    start: str = _row("", "network", "Start from", "model file or ONNX file with the initial weights")
    start_colours: str = _row("auto", "network", "Input normalization",
                              "input normalization of the ONNX file that training starts from",
                              choices=("auto", "imagenet", "tensorflow", "caffe"))
    train_layers: str = _row("all", "network", "Layers to train",
                             "layers to train when starting from a pretrained model", choices=("all", "last", "head"))
    dropout: float = _row(0.5, "network", "Dropout", "fraction of the classifier inputs that are dropped",
                          low=0.0, high=0.95)

    epochs: int = _row(30, "training", "Epochs", "passes over the training photos; an incomplete last batch is dropped",
                       low=1, high=100000, expert=False)
    minutes: float = _row(0.0, "training", "Time limit, minutes",
                          "train at most this many minutes; the learning rate schedule is fitted to it; 0: no limit",
                          low=0.0, high=1e6, expert=False, zero="no limit")
    batch_size: int = _row(32, "training", "Batch size",
                           "photos per optimizer step; 0 or auto: as many as fit into memory",
                           low=0, high=8192, zero="as many as fit")
    accumulate: int = _row(1, "training", "Gradient accumulation",
                           "number of parts that a batch is split into to save memory; the result is the same",
                           low=1, high=1024)
    seed: int = _row(0, "training", "Random seed", "seed of all random numbers", low=0, high=2**31 - 1)
    validate_every: int = _row(1, "training", "Validate every",
                               "validate after every this many epochs, and after the last", low=1, high=100000)
    patience: int = _row(0, "training", "Early stopping",
                         "stop after this many epochs without a better epoch; 0: never",
                         low=0, high=100000)

    optimizer: str = _row("adamw", "optimizer", "Optimizer", "optimizer", choices=OPTIMIZERS)
    learning_rate: float = _row(1e-3, "optimizer", "Learning rate", "highest learning rate", low=1e-8, high=10.0)
    momentum: float = _row(0.9, "optimizer", "Momentum", "momentum of SGD", low=0.0, high=0.9999)
    nesterov: bool = _row(True, "optimizer", "Nesterov", "use Nesterov momentum (SGD)")
    beta1: float = _row(0.9, "optimizer", "Beta 1", "decay rate of the first moment (Adam)", low=0.0, high=0.9999)
    beta2: float = _row(0.999, "optimizer", "Beta 2", "decay rate of the second moment (Adam)", low=0.0, high=0.999999)
    epsilon: float = _row(1e-8, "optimizer", "Epsilon", "term added to the denominator (Adam)", low=1e-16, high=1.0)
    weight_decay: float = _row(1e-4, "optimizer", "Weight decay", "strength of weight decay", low=0.0, high=1.0)
    clip_norm: float = _row(0.0, "optimizer", "Gradient clipping", "largest norm of the gradient; 0: no limit",
                            low=0.0, high=1e6)
    average: float = _row(0.0, "optimizer", "Weight averaging (EMA)",
                          "decay of the exponential moving average of the weights; 0: none", low=0.0, high=0.99999)
    schedule: str = _row("one_cycle", "optimizer", "Schedule", "learning rate schedule",
                         choices=("constant", "step", "inverse", "compounding", "cosine", "one_cycle"))
    warmup: float = _row(0.2, "optimizer", "Warm-up", "fraction of the steps in which the learning rate rises",
                         low=0.0, high=0.9)
    decay: float = _row(0.1, "optimizer", "Decay",
                        "factor of the step schedule, or decay per step of inverse and compounding", low=0.0, high=1.0)
    decay_epochs: int = _row(10, "optimizer", "Decay epochs", "epochs between two drops of the step schedule",
                             low=1, high=100000)

    label_smoothing: float = _row(0.0, "loss", "Label smoothing", "target probability given to the other classes",
                                  low=0.0, high=0.5)
    class_weights: str = _row("none", "loss", "Class weights", "weight of rare classes in the loss",
                              choices=("none", "balanced", "sqrt"))
    sampling: str = _row("natural", "loss", "Sampling", "how often photos of rare classes are drawn",
                         choices=("natural", "sqrt", "balanced"))
    teacher: tuple[str, ...] = _row(
        (), "loss", "Teachers", "model files or runs whose predictions are training targets (knowledge distillation)")
    teacher_share: float = _row(0.9, "loss", "Teacher weight",
                                "weight of the teachers' mean prediction in the training target; the rest is the label",
                                low=0.01, high=1.0)

    augment: str = _row("standard", "augmentation", "Augmentation",
                        "random changes of the training photos, new in every epoch",
                        choices=tuple(AUGMENTATIONS), meanings=AUGMENTATIONS, expert=False)
    augment_background: float = _row(
        0.0, "augmentation", "Other backgrounds",
        "fraction of the training photos whose leaf is placed on the background of another photo", low=0.0, high=1.0)
    pictures_without_leaf: float = _row(
        0.0, "augmentation", "Pictures without a leaf",
        "generated pictures without a leaf (50 to 1000), as a share of the training photos: added as a class if there "
        "is none; not with teachers or several labels",
        low=0.0, high=1.0)
    mix: float = _row(
        0.0, "augmentation", "Mixup and CutMix",
        "fraction of the training photos that are mixed with another photo, as a whole (mixup) or in a box (CutMix)",
        low=0.0, high=1.0)

    device: str = _row("auto", "device", "Device", "device to train on; auto: the GPU, if there is one",
                       choices=("auto", "cpu", "cuda"), expert=False)
    precision: str = _row("float32", "device", "Precision", "number format of the convolutions",
                          choices=("float32", "tf32", "mixed"))
    gpus: int = _row(1, "device", "GPUs", "number of GPUs of this machine that share each batch", low=1, high=1024)
    sync_batch_norm: bool = _row(False, "device", "Synchronized batch norm",
                                 "batch norm uses the statistics of the photos of all GPUs")
    algorithm: str = _row("auto", "device", "Algorithm", "kernel family by name, or auto")
    tune: bool = _row(
        False, "device", "Tune the GPU", "measure before training which kernels are fastest on this GPU (minutes, once)"
    )
    threads: int = _row(0, "device", "Threads", "number of CPU threads; 0: all cores", low=0, high=1024)
    stream_photos: bool = _row(False, "device", "Stream photos",
                               "send photos to the GPU batch by batch, even if they fit there at once")
    verify: bool = _row(False, "device", "Verify kernels",
                        "compare every kernel with its reference implementation (slow)")

    name: str = _row("", "run", "Model name",
                     "name of the model (default: photo folder, date and time)", expert=False)
    out: str = _row("", "run", "Run folder", "folder of the run (default: runs/<time>-<model>)")
    leaf_tests: bool = _row(
        True, "run", "Background tests", "test after training how much predictions depend on the background (border "
                                         "baseline, replaced backgrounds)")
    checkpoint_seconds: float = _row(60.0, "run", "Checkpoint every",
                                     "seconds between two checkpoints within an epoch", low=0.1, high=1e6)
    time_every: int = _row(
        0, "run", "Profile every",
        "steps between two timings of the kernels; 0: as often as costs under 1 % of the time", low=0, high=10**9)


def settings() -> dict[str, tuple[Field[Any], Setting]]:
    """Field name to (dataclass field, its row), in order."""
    return {f.name: (f, f.metadata["setting"]) for f in fields(RunConfig)}


def problems(config: RunConfig) -> list[Problem]:
    """All problems of the values; empty for a valid configuration."""
    found = []
    for name, (_, row) in settings().items():
        value = getattr(config, name)
        if row.choices and value not in row.choices:
            found.append(Problem(name, f"{value!r} is not one of {', '.join(row.choices)}."))
        elif "\0" in "".join(value if isinstance(value, str | tuple) else ()):
            found.append(Problem(name, "contains a zero byte."))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if value != value:
                found.append(Problem(name, "is not a number."))
            elif row.low is not None and value < row.low and (value or not row.zero):
                found.append(Problem(name, f"{value} is too small; the minimum is {row.low:g}."))
            elif row.high is not None and value > row.high:
                found.append(Problem(name, f"{value} is too large; the maximum is {row.high:g}."))
    if config.validation + config.test >= 0.9:
        found.append(Problem("test", "validation and test shares leave too few photos for training."))
    if config.accumulate > 0 and config.batch_size % config.accumulate:
        found.append(Problem("accumulate", f"does not divide the batch size {config.batch_size}."))
    if config.sync_batch_norm and (config.verify or config.algorithm != "auto"):
        found.append(Problem("sync_batch_norm", "cannot be combined with verify or an algorithm by name."))
    for name, usual in (("train_layers", "all"), ("start_colours", "auto")):
        if getattr(config, name) != usual and not config.start:
            found.append(Problem(name, "needs a pretrained model; give a model or ONNX file with --from."))
    found += [Problem("where", f"{w!r} is not of the form column=value.") for w in config.where if "=" not in w]
    return found


def to_dict(config: RunConfig) -> dict[str, Any]:
    return asdict(config)


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """A configuration from plain values, such as a TOML file's; expands ~. Raises ConfigError with all problems."""
    found = []
    known = settings()
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            found.append(Problem(name, "there is no such option."))
            continue
        default = known[name][0].default
        if isinstance(default, tuple) and isinstance(value, list | tuple):
            value = tuple(os.path.expanduser(str(v)) for v in value)
        elif isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(str(value))  # infinite where it is too large for one
        elif type(value) is not type(default):
            found.append(Problem(name, f"{value!r} is not {KINDS[type(default)]}."))
            continue
        chosen[name] = os.path.expanduser(value) if isinstance(value, str) else value
    config = RunConfig(**chosen)
    found += problems(config)
    if found:
        raise ConfigError(found)
    return config
