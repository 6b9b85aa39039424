"""The interface of a plan, implemented by `core.cpu.plan` and `core.gpu.plan`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np

from core.errors import InputError
from core.ops.contract import Array
from core.ops.photo import AUGMENTATION_SIZE, Backgrounds, background_problem, identity_augmentation
from core.optim.optimizer import Optimizer
from core.program import ParameterLayout, Program

STREAM_BUFFERS: Final = 3
"""Batches of streamed photos in a plan: of the steps that are started, at most two, and of the one that is copied."""
FLOAT32_ONLY: Final = "The CPU computes in float32; {} needs --device cuda."

__all__ = ["FLOAT32_ONLY", "STREAM_BUFFERS", "KernelTime", "Memory", "Optimizer", "PhotoBatch", "Plan", "StepResult"]


@dataclass(frozen=True, slots=True)
class PhotoBatch:
    """Photos from the cache, with the augmentation of each.

    photos: uint8 ``(N, H, W, 3)`` RGB, N up to the plan's batch; None if `index` has their rows in the set of
    `Plan.keep_photos`; augmentation: float32 ``(N, AUGMENTATION_SIZE)`` (`core.ops.photo`); labels: int32 ``(N,)``, -1
    if unknown; targets: float32 ``(N, classes)``, for a loss with targets (`core.ops.builder.with_loss`); first: index
    of the first photo in the batch of its step. For one rank's share of that batch: parts, number of parts of every
    share; step_labels, labels of the whole batch.
    """

    photos: Array | None
    augmentation: Array
    labels: Array
    index: Array | None = None
    targets: Array | None = None
    first: int = 0
    parts: int = 0
    step_labels: Array | None = None

    @staticmethod
    def plain(photos: Array, size: int) -> PhotoBatch:
        """Photos uint8 ``(N, side, side, 3)`` resized to `size`, without labels."""
        augmentation = identity_augmentation(len(photos), photos.shape[1], size)
        return PhotoBatch(photos, augmentation, np.full(len(photos), -1, np.int32))

    def photos_of_ranks(self, part: int, size: int, ranks: int) -> Array:
        """Photos in this part of every rank's share; ones if all are empty, since each rank then computes one photo."""
        assert self.step_labels is not None
        firsts = (np.arange(ranks) * self.parts + part) * size
        photos: Array = np.clip(len(self.step_labels) - firsts, 0, size)
        return photos if photos.any() else np.ones_like(photos)

    def check(self, kept: Array | None, most: int, backgrounds: Backgrounds | None, program: Program) -> Array:
        """Return the photos of this batch, or those `kept` that it names. Kernels read by address, without checks.

        Raises InputError if the plan of a program for `most` photos with these backgrounds cannot take it.
        """
        photos = kept if self.photos is None else self.photos
        problem = "they are named by index, but the plan has none (keep_photos)" if photos is None else (
            self._find_problem(photos, most) or background_problem(self.augmentation, backgrounds, len(photos))
            or self._find_label_problem(program)
        )  # fmt: skip
        if photos is None or problem:
            raise InputError(f"These photos cannot be computed: {problem}.")
        return photos

    def _find_problem(self, photos: Array, most: int) -> str:
        count, index = len(self.augmentation), self.index
        if photos.ndim != 4 or photos.shape[3] != 3 or not photos.size or photos.dtype != np.uint8:
            return "they are not (photos, height, width, 3) of uint8"
        if not 1 <= count <= most:
            return f"this plan takes 1 to {most} photos at a time, not {count}"
        if self.augmentation.shape != (count, AUGMENTATION_SIZE) or not np.isfinite(self.augmentation).all():
            return f"their transform is not {AUGMENTATION_SIZE} finite numbers a photo"
        if self.labels.shape != (count,):
            return f"there are {self.labels.size} labels for {count} photos"
        if index is None:
            return "" if len(photos) >= count else f"there are {len(photos)} photos for {count} transforms"
        if index.shape != (count,) or index.min() < 0 or index.max() >= len(photos):
            return f"their indices are not within 0 to {len(photos) - 1}"
        return ""

    def _find_label_problem(self, program: Program) -> str:
        size, classes, highest = program.target_size, program.output.shape[-1], int(self.labels.max())
        got, wanted = None if self.targets is None else self.targets.shape, (len(self.augmentation), size)
        if program.training and program.steps[-1].op == "softmax_cross_entropy" and highest >= classes:
            return f"a label is {highest}, but the classes are numbered 0 to {classes - 1}"
        if got == (wanted if size else None):
            return ""
        if not size:
            return "they have targets, but this network learns from labels alone"
        return f"this network learns from targets of {wanted} numbers, not from {got or 'labels alone'}"


@dataclass(frozen=True, slots=True)
class StepResult:
    """Mean loss and number of correct predictions of one step, and the gradient's norm before clipping."""

    loss: float
    correct: int
    photos: int
    gradient_norm: float

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient are finite; only then are weights updated."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time of one kernel of one step. floor_ms: time for its bytes and FLOPs at the device's peak."""

    layer: str
    direction: str
    kernel: str
    milliseconds: float
    flops: int
    bytes: int
    floor_ms: float

    @property
    def gflops(self) -> float:
        """GFLOP/s; like the other rates 0 where nothing was measured."""
        return self.flops / self.milliseconds / 1e6 if self.milliseconds > 0 else 0.0

    @property
    def gigabytes(self) -> float:
        """GB/s, read and written."""
        return self.bytes / self.milliseconds / 1e6 if self.milliseconds > 0 else 0.0

    @property
    def of_peak(self) -> float:
        """The ratio of the floor to the time; 1 is the device's peak."""
        return self.floor_ms / self.milliseconds if self.milliseconds > 0 else 0.0

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes if self.bytes > 0 else 0.0

    def __add__(self, other: KernelTime) -> KernelTime:
        """The sums of both, with the names of the first."""
        return replace(
            self, milliseconds=self.milliseconds + other.milliseconds, flops=self.flops + other.flops,
            bytes=self.bytes + other.bytes, floor_ms=self.floor_ms + other.floor_ms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a plan, known before it runs."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int
    photos: int

    @property
    def total(self) -> int:
        return sum(int(getattr(self, f.name)) for f in fields(self))


class Plan(ABC):
    """A program on a device: memory laid out, one kernel chosen per step, nothing allocated while it runs.

    Weights and optimizer state go in and out as float32 host arrays by full parameter name (OHWI).
    """

    program: Program
    layout: ParameterLayout
    memory: Memory
    batch: int
    ranks: int = 1
    """Ranks that share each step (`core.communicator`)."""
    sync_batch_norm: bool = False
    """Whether batch norm uses the statistics of all ranks for batches with `step_labels`."""
    asynchronous: bool = False
    """Whether `start_step` returns while the step is computed; otherwise the returned function computes it.

    Then the next step may be started before the result of this one is read; two steps at most.
    """

    @abstractmethod
    def load(self, weights: Mapping[str, Array]) -> None:
        """Copy all weights in. Raises ModelFileError naming every missing, extra or misshapen array."""

    @abstractmethod
    def weights(self) -> dict[str, Array]:
        """Copies of all weights and running statistics."""

    @abstractmethod
    def state(self) -> dict[str, Array]:
        """Optimizer state as flat arrays ("momentum", or "first" and "second"; "average") and "step"."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore the result of `state`; the next step has the same bits as without interruption."""

    @abstractmethod
    def predict(self, batch: PhotoBatch) -> dict[str, Array]:
        """Inference: "logits" ``(N, classes)`` and the further `outputs` of `core.plan.compile_plan`, float32."""

    @abstractmethod
    def gradient(self, batch: PhotoBatch, accumulate: bool = False, share: float = 1.0) -> StepResult:
        """Forward and backward; the mean gradient times `share` stays in the plan (`gradients`), the loss likewise.

        Parts of one step weigh `share` as much as the mean of the parts (`core.training.step.start_step`).
        """

    @abstractmethod
    def announce(self, batch: PhotoBatch | None) -> None:
        """Name the batch after the next one, or None. Its photos may be copied already, and must not change."""

    @abstractmethod
    def gradients(self) -> dict[str, Array]:
        """Copies of the gradients of all trained parameters."""

    @abstractmethod
    def update(self, learning_rate: float) -> None:
        """One optimizer step with the gradients at hand (divided by the number of accumulated batches)."""

    @abstractmethod
    def average(self, result: StepResult) -> StepResult:
        """Replace the gradient by its mean over the ranks; returns loss and hits of all ranks."""

    def train_step(self, batch: PhotoBatch, learning_rate: float) -> StepResult:
        """`gradient`, `average` and `update` in one go; on CUDA the same bits by one replay of the captured graph.

        Where the result is not finite, weights and optimizer state stay as they were.
        """
        return self.start_step(batch, learning_rate)()

    def start_step(self, batch: PhotoBatch, learning_rate: float, share: float = 1.0) -> Callable[[], StepResult]:
        """Start `train_step` if the plan is `asynchronous`; returns a function that returns its result."""

        def compute() -> StepResult:
            result = self.gradient(batch, share=share)
            result = self.average(result) if self.ranks > 1 else result
            if result.is_finite:
                self.update(learning_rate)
            return result

        return compute

    @abstractmethod
    def fits(self, size: int) -> bool:
        """Whether so many bytes of photos fit on the device beside the plan."""

    @abstractmethod
    def keep_photos(self, photos: Array, stream: bool = False) -> bool:
        """Put a set of uint8 photos on the device for use by `PhotoBatch.index`; False if it does not fit.

        Then, or with `stream`, batches of such photos come from the host; `memory` counts their way.
        """

    @abstractmethod
    def keep_backgrounds(self, backgrounds: Backgrounds) -> None:
        """Copy masks and backgrounds to the device, for augmentation that replaces backgrounds. Raises OutOfMemory."""

    @abstractmethod
    def borrow_photos(self, owner: Self) -> None:
        """Share photos and backgrounds that another plan keeps on this device; close that plan after this one."""

    @abstractmethod
    def time_kernels(self, batch: PhotoBatch) -> list[KernelTime]:
        """Run one step (training plan: forward and backward; else forward) with every kernel timed."""

    @abstractmethod
    def kernels(self) -> list[tuple[str, str, str]]:
        """(layer, direction, kernel name) of every step, in order, as chosen."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back; the plan must not be used afterwards."""
