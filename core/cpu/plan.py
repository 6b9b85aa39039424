"""The plan of the CPU: a program as records, executed image by image on every thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from core.communicator import Communicator, SingleProcess
from core.cores import usable_cores
from core.cpu import context as ctx
from core.cpu import photo
from core.cpu.batch_norm import add_ranks
from core.cpu.context import Context
from core.cpu.execution import Schedule, execute_images, execute_schedule, share_out
from core.cpu.geometry import Buffers, insert_flatten
from core.cpu.kernel_entries import ALGORITHMS, choose_writers
from core.cpu.lowering import Lowering
from core.cpu.memory import aligned
from core.cpu.optimizer import CpuOptimizer, sum_records
from core.cpu.products import is_dense_dominated
from core.cpu.record_list import list_records, split_stages
from core.cpu.records import Record, RecordTable, encode_records, entry
from core.cpu.timing import time_records
from core.cpu.verification import check_gradients, check_outputs, read_outputs
from core.device import FLOAT32_ONLY, KernelTime, Memory, Optimizer, PhotoBatch, Plan, StepResult
from core.errors import DeviceError, InputError, KernelUnavailable, OutOfMemory
from core.graph import PHOTO, Graph
from core.ops.contract import Array, Arrays, Mode
from core.ops.photo import Backgrounds
from core.program import flatten_parameters, lay_out_parameters, lower, name_parameters


class CpuPlan(Plan):
    """Executes a program on the CPU: threads take images by index, and each thread sums its own gradient.

    Where batch norm uses the batch's statistics, or dense layers are computed for all images at once, every
    image has its own memory, and the threads synchronize there. A single image is split inside the kernels.
    """

    def __init__(
        self, graph: Graph, *, batch: int, training: bool, precision: str = "float32", algorithm: str = "auto",
        optimizer: Optimizer | None = None, outputs: Sequence[str] = (), frozen: Sequence[str] = (),
        seed: int = 0, threads: int = 0, verify: bool = False, communicator: Communicator | None = None,
        sync_batch_norm: bool = False,
    ) -> None:  # fmt: skip
        if precision != "float32":
            raise DeviceError(FLOAT32_ONLY.format(precision))
        if algorithm not in ALGORITHMS:
            known = ", ".join(ALGORITHMS)
            raise KernelUnavailable(f"The CPU has no algorithm {algorithm!r} for whole networks; it has {known}.")
        self._communicator = communicator or SingleProcess()
        self.ranks, self.sync_batch_norm = self._communicator.size, sync_batch_norm
        self.batch, self.training, self._seed, self._verify = batch, training, seed, verify
        self.threads = threads or usable_cores()
        self.program = insert_flatten(lower(graph, training, outputs))
        self.layout = lay_out_parameters(graph)
        self._writers = choose_writers(self.program, batch, algorithm)
        self._tiled = algorithm in ("auto", "tiled")
        together = batch > 1 and self._tiled and is_dense_dominated(self.program)
        self._by_image = together or self.program.uses_batch_statistics()
        self._slots = batch if self._by_image else min(self.threads, batch)
        try:
            self._build(optimizer or Optimizer(), tuple(outputs), frozenset(frozen), together)
        except MemoryError as error:
            raise OutOfMemory(
                f"This network with batch size {batch} needs more memory than is available. Close other programs. "
                "Training needs less memory with a smaller batch size or photo size."
            ) from error

    def _build(self, optimizer: Optimizer, outputs: Sequence[str], frozen: frozenset[str], together: bool) -> None:
        self._weights = aligned(self.layout.size)
        self._gradient = aligned(self.layout.trained if self.training else 0)
        self._lowering = lowering = Lowering(
            self.program, self.layout, self.batch, frozen, Buffers(self.program), self._writers, self._weights,
            self._gradient, together=together,
        )  # fmt: skip
        self._record_list = list_records(lowering, outputs)
        self.records, self._outputs = self._record_list.records, self._record_list.outputs
        self._arena = aligned(self._slots * lowering.buffers.slot_bytes // 4)
        private_bytes = 4 * self.layout.trained if self.training else 0
        self._private = aligned(self.threads * private_bytes // 4)
        self._slot_space = (self._arena.ctypes.data, lowering.buffers.slot_bytes)
        self._private_space = (self._private.ctypes.data, private_bytes)
        self._context = Context(self.batch)
        self._accumulated = self._photos = 0
        self._kept: Array | None = None
        self._backgrounds: Backgrounds | None = None
        self._table = encode_records(self.records, self._slot_space, self._private_space)
        self._photo_record = next(i for i, r in enumerate(self.records) if r.kernel is photo.run_plain_photo)
        self._stages = split_stages(self.records)
        self._ungrouped = share_out(self.records, range(len(self.records) + 1), self.threads)
        # Only the records of fast kernels are independent within a group, which then needs no synchronization.
        bounds = self._record_list.bounds
        self._groups = share_out(self.records, bounds, self.threads) if self._tiled else self._ungrouped
        self._packs = self._share_out(lowering.packs)
        if self.training:
            self._optimizer = CpuOptimizer(optimizer, lowering)
            self._updates = self._share_out(self._optimizer.records, [0, 1, 2])
            self._sums = [self._share_out(sum_records(lowering, add, self.threads)) for add in (False, True)]
        self.memory = Memory(
            parameters=self._weights.nbytes, gradients=self._gradient.nbytes + self._private.nbytes,
            optimizer=self._optimizer.bytes if self.training else 0, activations=self._arena.nbytes,
            workspace=sum(array.nbytes for array in lowering.arrays), photos=0,
        )  # fmt: skip

    def _share_out(self, records: Sequence[Record], bounds: Sequence[int] = ()) -> tuple[RecordTable, Schedule]:
        """Encode and schedule records over all threads; without bounds they are one group, in which no thread waits."""
        table = encode_records(records, self._slot_space, self._private_space)
        return table, share_out(records, bounds or [0, len(records)], self.threads)

    def load(self, weights: Mapping[str, Array]) -> None:
        self._weights[: self.layout.size] = flatten_parameters(weights, self.layout)
        if self.training:
            self._optimizer.start_average(self._weights)
        self._run_groups(*self._packs)

    def weights(self) -> dict[str, Array]:
        return name_parameters(self._weights[: self.layout.size], self.layout)

    def state(self) -> dict[str, Array]:
        return self._optimizer.state()

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._optimizer.load_state(state)

    def predict(self, batch: PhotoBatch) -> dict[str, Array]:
        if self.training:
            raise InputError("A plan for training does not predict; compile one for inference and load the weights.")
        count = self._point_at(batch)
        if self._verify:
            self._check_forward(count)
        self._execute(count)
        return {name: array[:count].copy() for name, array in self._outputs.items()}

    def gradient(self, batch: PhotoBatch, accumulate: bool = False, share: float = 1.0) -> StepResult:
        if not accumulate:
            self._accumulated, self._photos = 0, batch.first
        count = self._point_at(batch)
        self._context.fields[ctx.ADD] = int(accumulate)
        self._context.inverse_weight *= np.float32(share)
        wanted: Arrays = self._check_forward(count) if self._verify else {}
        self._execute(count, self.sync_batch_norm and batch.step_labels is not None)
        self._run_groups(*self._sums[int(accumulate)])
        self._run_groups(*self._updates, 0, 1)
        self._accumulated, self._photos = self._accumulated + 1, self._photos + count
        if wanted and not accumulate:
            trained = {name: share * array for name, array in wanted.items() if name not in self._lowering.frozen}
            check_gradients(self.gradients(), trained)
        loss, correct = self._context.losses[:count].sum(dtype=np.float64), self._context.correct[:count].sum()
        return StepResult(float(loss), int(correct), count, self._optimizer.norm(self._accumulated))

    def announce(self, batch: PhotoBatch | None) -> None:
        """Do nothing: the CPU reads photos in place, without a transfer."""

    def gradients(self) -> dict[str, Array]:
        return name_parameters(self._gradient[: self.layout.trained], self.layout)

    def update(self, learning_rate: float) -> None:
        self._optimizer.prepare(learning_rate, self._accumulated)
        self._run_groups(*self._updates, 1, 2)
        self._run_groups(*self._packs)

    def average(self, result: StepResult) -> StepResult:
        scores = np.array([result.loss, result.correct], np.float32)
        blocks = [(self._gradient.ctypes.data, self.layout.trained), (scores.ctypes.data, len(scores))]
        self._communicator.average_gradients(blocks)
        self._run_groups(*self._updates, 0, 1)
        norm = self._optimizer.norm(self._accumulated)
        return StepResult(float(scores[0]), round(scores[1] * self.ranks), result.photos, norm)

    def fits(self, size: int) -> bool:
        return True  # they are read in place

    def keep_photos(self, photos: Array, stream: bool = False) -> bool:
        self._kept = np.ascontiguousarray(photos)  # read in place, also from a mapped file
        return not stream

    def keep_backgrounds(self, backgrounds: Backgrounds) -> None:
        self._backgrounds, fields = backgrounds, self._context.fields
        fields[ctx.MASKS], fields[ctx.BACKGROUNDS] = backgrounds.masks.ctypes.data, backgrounds.images.ctypes.data
        fields[ctx.MASK_HEIGHT], fields[ctx.MASK_WIDTH] = backgrounds.masks.shape[1:]
        fields[ctx.BACKGROUND_HEIGHT], fields[ctx.BACKGROUND_WIDTH] = backgrounds.images.shape[1:3]

    def borrow_photos(self, owner: CpuPlan) -> None:
        self._kept = owner._kept
        if owner._backgrounds is not None:
            self.keep_backgrounds(owner._backgrounds)

    def time_kernels(self, batch: PhotoBatch) -> list[KernelTime]:
        """Time each kernel alone over the whole batch, three times; weights and statistics do not change."""
        count = self._point_at(batch)
        before = self._weights.copy()
        self._execute(count)
        times = time_records(self.program, self.records, lambda i: self._run_for_batch(i, count), count, self.threads)
        self._weights[:] = before
        self._private[:] = 0
        return times

    def kernels(self) -> list[tuple[str, str, str]]:
        return list(dict.fromkeys((r.layer, r.direction, r.name) for r in self.records))

    def close(self) -> None:
        """Release all arrays, and with them the records that hold their addresses; the plan cannot run afterwards."""
        kept = ("program", "layout", "memory", "batch", "training", "threads")
        for name in [name for name in self.__dict__ if name not in kept]:
            del self.__dict__[name]

    def _execute(self, images: int, synchronized: bool = False) -> None:
        """Run all records for the images that the context points to; with batch norm statistics of all ranks."""
        if not self.training and (images == 1 or (self.threads == 1 and not self._by_image)):
            for n in range(images):  # one after another, each on all threads
                self._run_groups(self._table, self._groups, image=n)
            return
        backwards = False
        for stage in self._stages:
            if stage.once and synchronized:
                for index in range(stage.first, stage.last):
                    record, labels = self._table.words[index], self._alive[2][:images]
                    add_ranks(self.records[index], record, self._context.fields, labels, self._communicator)
                    self._run_for_image(index)
            elif stage.once:
                self._run_groups(self._table, self._ungrouped, stage.first, stage.last)
            else:  # alternate the order: the last images of a stage are still in the caches
                self._run_images(stage.first, stage.last, images, backwards)
                backwards = not backwards

    def _run_groups(
        self, table: RecordTable, schedule: Schedule, first: int = 0, last: int = -1, image: int = 0
    ) -> None:
        execute_schedule(table, schedule, self._context.address, first, last, image)

    def _check_forward(self, count: int) -> Arrays:
        """Compare every forward step with the reference and return the reference's gradients of a training step."""
        before, step = self._weights.copy(), int(self._context.fields[ctx.STEP])
        found = []
        for n in [0] if self._by_image else range(count):
            run = (partial(self._run_for_batch, images=count) if self._by_image else
                   partial(self._run_for_image, image=n))  # fmt: skip
            slots = (*self._slot_space, count if self._by_image else 1)
            found.append(read_outputs(self._lowering, self._record_list.parts, run, slots))
        self._weights[:] = before
        outputs = {value: np.concatenate([one[value] for one in found]) for value in found[0]}
        _, _, labels, _, targets = self._alive
        mode = Mode(self.training, self._seed, step, self._photos)
        return check_outputs(self.program, self.weights(), outputs, mode, labels, targets)

    def _run_for_image(self, index: int, image: int = 0) -> None:
        """Run one record for one image, in the memory of the first slot."""
        self._run_groups(self._table, self._ungrouped, index, index + 1, image)

    def _run_for_batch(self, index: int, images: int) -> None:
        """Run one record for the first `images` images."""
        if self.records[index].once or (images == 1 and not self.training):
            self._run_for_image(index)
        else:
            self._run_images(index, index + 1, images)

    def _run_images(self, first: int, last: int, images: int, backwards: bool = False) -> None:
        threads = min(self.threads, images)  # there are no more slots than images
        execute_images(
            self._table, self._context.address, first, last, images, threads, backwards, by_thread=not self._by_image
        )

    def _point_at(self, batch: PhotoBatch) -> int:
        """Fill the context for a batch and return its number of images."""
        photos = batch.check(self._kept, self.batch, self._backgrounds, self.program)
        photos = np.ascontiguousarray(photos, np.uint8)
        augmentation = np.ascontiguousarray(batch.augmentation, np.float32)
        labels = np.ascontiguousarray(batch.labels, np.int32)
        index = None if batch.index is None else np.ascontiguousarray(batch.index, np.int64)
        count = len(augmentation)
        targets = None if batch.targets is None else np.ascontiguousarray(batch.targets, np.float32)
        self._alive = (photos, augmentation, labels, index, targets)
        fields = self._context.fields
        fields[ctx.PHOTOS], fields[ctx.PHOTO_BYTES] = photos.ctypes.data, photos[0].nbytes
        fields[ctx.SOURCE_HEIGHT], fields[ctx.SOURCE_WIDTH] = photos.shape[1:3]
        fields[ctx.AUGMENTATION] = augmentation.ctypes.data
        fields[ctx.INDEX] = 0 if index is None else index.ctypes.data
        fields[ctx.SEED], fields[ctx.PHOTO0] = self._seed, self._photos
        self._context.set_count(count)
        kernel = photo.photo_kernel(augmentation, self.program.values[PHOTO].shape, photos.shape[1:3])
        self._table.words[self._photo_record, 0] = entry(kernel).address
        if self.training:
            fields[ctx.STEP] = self._optimizer.step
            self._context.set_labels(labels, targets, self.program.steps[-1].attributes.get("class_weights", ()))
        return count
