"""Sets up a run from its configuration: photos, network, plans, loaders."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.communicator import Communicator
from core.config import RunConfig
from core.data.cache import PhotoCache
from core.data.dataset import TEST, TRAIN, VALIDATION, Dataset, ReportStage, ignore
from core.data.field_photos import check_field, describe_field, open_field, scan_field
from core.data.label_sets import target_table
from core.data.loader import Loader
from core.data.mixing import BackgroundReplacement, Mixing
from core.data.preparation import CheckClasses, GroupedPhotos, PhotoSet, prepare_photos
from core.data.split import open_split
from core.device import FLOAT32_ONLY, Plan
from core.diagnosis.backgrounds import prepare_replacement
from core.diagnosis.model_file import with_photo_side
from core.diagnosis.pictures_without_leaf import add_pictures
from core.diagnosis.training_photos import TrainingPhotos, record_photos
from core.distributed.rank_environment import RankEnvironment, connect
from core.errors import DeviceError, ModelFileError
from core.graph import Graph
from core.models import build
from core.ops.contract import Array
from core.plan import choose_device, count_gpus, cuda_problem
from core.training.commands import Commands, ThreadedJob
from core.training.conditions import Conditions, present_conditions
from core.training.events import Progress
from core.training.presets import fit_recipe
from core.training.teacher import Teacher, Teachers, describe_teachers, order_classes, read_teachers
from core.training.training_plan import compile_for_training, part_size
from core.training.transfer import Origin, describe_origin, first_network, read_start
from core.training.validation import Validator, compile_inference

VALIDATION_BATCH: Final = {"cpu": 32, "cuda": 256}
ALONE: Final = RankEnvironment()


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """A run that is ready for its first step.

    graph: up to the logits, without the loss; graph_in_use: the same with the photo size of validation and diagnosis;
    only_training: what the tests of the final model do not need, in the order in which it was opened; learned: the
    training photos of the weights; origin_words: sentences about evaluated photos among them.
    """

    config: RunConfig
    photos: PhotoSet
    field_photos: GroupedPhotos | None
    fingerprint: str
    graph: Graph
    graph_in_use: Graph
    device: str
    communicator: Communicator
    plan: Plan
    teachers: Teachers | None
    only_training: list[Plan | Teachers]
    validator: Validator
    learned: TrainingPhotos
    origin_words: tuple[str, ...]
    start_hash: str
    train: Loader
    validation: Loader
    test: Loader | None
    field: Loader | None
    warnings: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        return self.photos.classes

    @property
    def conditions(self) -> Conditions:
        return present_conditions(self.config, self.device, self.communicator.size)

    @property
    def evaluated(self) -> dict[str, Loader | None]:
        """The loaders of photos that ranks evaluate together, by stage (`Validator.assist`)."""
        return {"validation": self.validation, "test": self.test, "field": self.field}

    def close_training(self) -> None:
        """Release the memory that only training needs."""
        while self.only_training:
            self.only_training.pop().close()

    def close(self) -> None:
        if self.communicator.lost:  # work on the GPU that waits for other ranks never ends
            return
        self.close_training()
        self.validator.plan.close()


def set_up(
    config: RunConfig, commands: Commands, environment: RankEnvironment = ALONE
) -> Generator[Progress, None, Setup]:
    """Connect the ranks, scan and decode the photos, compile the plans, load the first weights; yields progress."""
    device = choose_device(config.device)
    communicator = connect(environment, device)
    config, origin = read_start(config)
    files = read_teachers(config)
    config = replace(config, teacher=tuple(str(teacher.path) for teacher in files))
    scanned = check_request(config, device, origin)
    with one_on_each_machine_first(communicator):
        photos = yield from _prepare(config, device, commands, classes_check(scanned, files))
    precision, older = choose_precision(config.precision, device)
    field = None if scanned is None else (yield from _open_field(config, photos, scanned, commands))
    config = config if photos.sets is None else replace(config, labels="multi")
    config = config if photos.added else replace(config, pictures_without_leaf=0.0)
    network = first_network(config, origin, photos.classes)
    graph, used = network.graph, graph_in_use(config, network.graph)
    config, fitted = fit_recipe(replace(config, precision=precision), len(photos.rows(TRAIN)))
    plan, batch, untuned = yield from compile_for_training(config, graph, device, photos, network.weights, communicator)
    teachers = Teachers(files, config, photos.classes, device, plan.batch, photos.sets) if files else None
    validator = Validator(used, compile_inference(used, device, VALIDATION_BATCH[device], config.threads), communicator)
    plan.load(network.weights)
    replacement = yield from _prepare_replacement(config, photos, plan, commands)
    validator.plan.keep_photos(photos.cache.photos, stream=True)
    resident = plan.keep_photos(photos.cache.photos, config.stream_photos)
    if teachers is not None:
        teachers.borrow_photos(plan)
    identity, tested = fingerprint(photos), evaluation_contents(photos, field)
    origins, notes = describe_origin(origin, tested), describe_teachers(files, config.teacher_share, identity, tested)
    remarks = (*gpu_note(config.device, device), *older, *untuned, *fitted, *notes, *describe_prevented_leakage(photos))
    return Setup(
        config=replace(config, batch_size=batch), photos=photos, field_photos=field, fingerprint=identity,
        graph=graph, graph_in_use=used, device=device, communicator=communicator, plan=plan, teachers=teachers,
        only_training=[plan, teachers] if teachers else [plan], validator=validator, origin_words=origins,
        learned=record_photos(photos.contents(TRAIN), [o.learned for o in (origin, *(t.model for t in files)) if o]),
        **_loaders_of_evaluation(config, photos, field, device, communicator), start_hash=origin.hash if origin else "",
        train=_training_loader(config, photos, batch, resident, replacement, communicator),
        warnings=(*remarks, *network.notes, *origins, *photos.warnings, *describe_field(field, photos.cache)),
    )  # fmt: skip


def _prepare(
    config: RunConfig, device: str, commands: Commands, check: CheckClasses
) -> Generator[Progress, None, PhotoSet]:
    """Prepare the photos, and the device in the meantime."""

    def prepare(report: ReportStage) -> PhotoSet:
        return add_pictures(config, prepare_photos(config, report, check))

    kernels = compile_cpu_kernels if device == "cpu" else ignore
    with closing(ThreadedJob(prepare, commands)) as preparing, closing(ThreadedJob(kernels, commands)) as compiling:
        if device == "cuda":
            open_gpu()
        photos = yield from preparing.wait()
        yield from compiling.wait()
    return photos


def open_gpu() -> None:
    """Import the GPU engine and open the device while photos are decoded. Raises DeviceError."""
    if (problem := cuda_problem()) is not None:
        raise DeviceError(problem)
    import_module("core.gpu.plan")
    from core.gpu.driver.device import open_device  # in this thread, which a CUDA context belongs to

    open_device()


def check_request(config: RunConfig, device: str, origin: Origin | None) -> Dataset | None:
    """The user's field photos, not decoded. Raises at once what would end the run after its photos are decoded."""
    if device == "cpu" and config.precision != "float32":
        raise DeviceError(FLOAT32_ONLY.format(config.precision))
    if config.split:
        open_split(Path(config.split))
    graph_in_use(config, build(config.model, 2, config.image_size) if origin is None else origin.graph)
    return scan_field(config)


def _open_field(
    config: RunConfig, photos: PhotoSet, scanned: Dataset, commands: Commands
) -> Generator[Progress, None, GroupedPhotos]:
    given = scanned, photos.classes, photos.cache.side, config, photos.sets is not None
    return (yield from ThreadedJob(lambda report: open_field(*given, report), commands).wait())


def _prepare_replacement(
    config: RunConfig, photos: PhotoSet, plan: Plan, commands: Commands
) -> Generator[Progress, None, BackgroundReplacement | None]:
    """The background replacement of the settings, with the backgrounds on the plan's device; None without."""
    share = config.augment_background
    if not share:
        return None
    replacement = yield from ThreadedJob(lambda report: prepare_replacement(photos, share, report), commands).wait()
    plan.keep_backgrounds(replacement.backgrounds)
    return replacement


def graph_in_use(config: RunConfig, graph: Graph) -> Graph:
    """The network for inference, with photos of `use_size`. Raises ModelFileError if that is impossible."""
    return with_photo_side(graph, config.use_size) if config.use_size else graph


def compile_cpu_kernels(report: ReportStage) -> None:
    """Compile all CPU kernels, or load them from the cache, while photos are prepared."""
    from core.cpu.precompilation import all_kernels, compile_kernels  # importing Numba takes a second

    compile_kernels(all_kernels(), partial(report, "compile"))


def gpu_note(wanted: str, device: str) -> tuple[str, ...]:
    """For "auto" a sentence with the reason if the GPU cannot be used."""
    return (f"Training on the CPU. {cuda_problem()}",) if (wanted, device) == ("auto", "cpu") else ()


def check_gpus(config: RunConfig) -> None:
    """Raise DeviceError if this machine has fewer GPUs than `config.gpus`."""
    found = count_gpus()
    if config.device == "cpu" or not found:
        why = cuda_problem() or "They asked for the CPU."
        raise DeviceError(f"--gpus {config.gpus} needs GPUs. {why} Several processes on CPUs are started by MPI: "
                          "mpirun -n 2 leafclinic train ... --device cpu.")  # fmt: skip
    if found < config.gpus:
        raise DeviceError(f"--gpus {config.gpus}: this machine has {found}.")


def choose_precision(wanted: str, device: str) -> tuple[str, tuple[str, ...]]:
    """The precision, with a sentence if an older GPU supports only float32; the GPU must be open."""
    if device != "cuda" or wanted == "float32":
        return wanted, ()
    from core.gpu.driver.device import precision_problem

    reason = precision_problem()
    return (wanted, ()) if reason is None else ("float32", (f"{reason} This run uses it instead of {wanted}.",))


def fingerprint(photos: PhotoSet) -> str:
    splits = photos.splits[photos.cache.kept]
    return hashlib.sha256(photos.fingerprint.encode() + splits.tobytes()).hexdigest()


def _training_loader(
    config: RunConfig, photos: PhotoSet, batch: int, resident: bool, replacement: BackgroundReplacement | None,
    communicator: Communicator,
) -> Loader:  # fmt: skip
    slots, labels = photos.training
    part = part_size(config, batch, communicator.size)
    targets = target_table(len(photos.classes), config.label_smoothing, photos.sets)
    mixing = Mixing(config.mix, part, targets, config.augment) if config.mix else None
    return Loader(
        photos.cache.photos, slots, labels, batch=batch, size=config.image_size,
        training=True, augment=config.augment, sampling=config.sampling, seed=config.seed, resident=resident,
        replacement=replacement, mixing=mixing, targets=None if photos.sets is None else targets,
        rank=communicator.rank, ranks=communicator.size, part=part,
    )  # fmt: skip


def _loaders_of_evaluation(
    config: RunConfig, photos: PhotoSet, field: GroupedPhotos | None, device: str, communicator: Communicator
) -> dict[str, Any]:
    """The loaders for evaluation, by their field of `Setup`; None where there are no photos."""

    def load(cache: PhotoCache, rows: Array) -> Loader | None:
        return None if not len(rows) else Loader(
            cache.photos, cache.slots[rows], np.full(len(rows), -1), batch=VALIDATION_BATCH[device],
            size=config.use_size or config.image_size, training=False, rank=communicator.rank, ranks=communicator.size,
        )  # fmt: skip

    found = {name: load(photos.cache, photos.rows(at)) for name, at in (("validation", VALIDATION), ("test", TEST))}
    return {**found, "field": None if field is None else load(field.cache, field.cache.kept)}


def classes_check(scanned: Dataset | None, teachers: Sequence[Teacher]) -> CheckClasses:
    """A check that field photos and teachers have the classes; run before photos are decoded, which may take long."""

    def check(classes: Sequence[str], multi: bool) -> None:
        if scanned is not None:
            check_field(scanned, classes, multi)
        for teacher in teachers:
            order_classes(teacher, classes)
            if teacher.model.multilabel != multi:
                raise ModelFileError(f"{teacher.path} cannot be a teacher for these photos: only one of them has "
                                     "several labels per photo.")

    return check


def evaluation_contents(photos: PhotoSet, field: GroupedPhotos | None) -> tuple[tuple[str, Array], ...]:
    sets = [("validation", photos.contents(VALIDATION)), ("test", photos.contents(TEST))]
    if field is not None:
        sets.append(("field", field.cache.content[field.cache.kept]))
    return tuple((kind, content) for kind, content in sets if len(content))


def describe_prevented_leakage(photos: PhotoSet) -> tuple[str, ...]:
    """A sentence on the leakage of a random split, if this split has none."""
    leak = photos.random_leak
    if photos.leak.leaked or not leak.leaked:
        return ()
    return (f"A random split would leak {leak.leaked} of {leak.held_out} validation and test photos: photos of the "
            "same group would be in different splits, and the measured accuracy would be too high.",)  # fmt: skip


@contextmanager
def one_on_each_machine_first(communicator: Communicator) -> Iterator[None]:
    """Let one rank of each machine work first, so that the others find its results in the cache."""
    if communicator.machine_rank:
        communicator.barrier()
    yield
    if not communicator.machine_rank:
        communicator.barrier()
