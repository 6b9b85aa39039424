"""The plan of the GPU: a program as launches over one arena, captured as CUDA graphs and replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from core.arena import Arena, lay_out
from core.communicator import Communicator, SingleProcess
from core.device import KernelTime, Memory, Optimizer, PhotoBatch, Plan, StepResult
from core.errors import InputError, KernelUnavailable, OutOfMemory
from core.gpu.compilation.cuda import driver
from core.gpu.driver import device as gpu
from core.gpu.driver.memory import Block, Pinned
from core.gpu.frame import Frame
from core.gpu.graph_capture import CapturedGraph, Event, GradientAverage, capture_streams
from core.gpu.kept_photos import KeptPhotos
from core.gpu.launch import RELU, Launch
from core.gpu.lowering import write_launches, write_lists
from core.gpu.ops.update.optimizer import REPORT_BYTES
from core.gpu.select import check_level
from core.gpu.sizes import block_sizes, count_memory, fits, require_room
from core.gpu.staging import Staging
from core.gpu.timing import time_inside, time_launches, time_replays
from core.gpu.tuning import Table, load_table
from core.gpu.verify import verify_program
from core.graph import PHOTO
from core.graph import Graph as Network
from core.ops.contract import Array, Mode
from core.ops.photo import Backgrounds
from core.optim.optimizer import RULES, check_state, scalars
from core.program import Value, flatten_parameters, lay_out_parameters, list_roles, lower, name_parameters

AVERAGED: Final = ("step", "average")  # lists that average gradient, loss and hits over ranks


class CudaPlan(Plan):
    """All arrays are allocated when the plan is made; a step is one copy in and one replay, which writes its result to
    the host."""

    def __init__(
        self, graph: Network, *, batch: int, training: bool, precision: str = "float32", algorithm: str = "auto",
        optimizer: Optimizer | None = None, outputs: Sequence[str] = (), frozen: Sequence[str] = (), seed: int = 0,
        verify: bool = False, communicator: Communicator | None = None, sync_batch_norm: bool = False,
        tuning: Table | None = None,
    ) -> None:  # fmt: skip
        check_level(algorithm, precision)
        if sync_batch_norm and (verify or algorithm != "auto"):
            raise KernelUnavailable("Synchronized batch norm excludes verification and algorithms by name.")
        self._communicator = communicator or SingleProcess()
        self.ranks, self.sync_batch_norm = self._communicator.size, sync_batch_norm
        self.asynchronous = not verify  # the reference must see the weights before the update
        self.batch, self.training, self._precision, self._seed, self._verify = batch, training, precision, seed, verify
        self._optimizer, self._outputs = optimizer or Optimizer(), tuple(outputs)
        self.program = lower(graph, training, outputs, RELU)
        self.layout = lay_out_parameters(graph)
        self._new_frame = partial(
            Frame, self.program, precision=precision, frozen=frozenset(frozen), algorithm=algorithm, stores_all=verify,
            kept=frozenset(self.program.values[name].buffer for name in outputs),
            tuning=load_table(gpu.open_device().identity) if tuning is None else tuning,
            ranks=self.ranks if sync_batch_norm else 1,
        )  # fmt: skip
        self._whole = "step" if training else "predict"  # the list of launches of one replay
        self._step = self._parts = 0  # steps so far; parts of the present one
        names = RULES[self._optimizer.name].moments if training else ()
        self._state = dict(zip(names, ("first", "second"), strict=False))  # blocks; "first" has SGD's momentum too
        if training and self._optimizer.average > 0:
            self._state["average"] = "average"
        self._kept = self._read = KeptPhotos()  # its own, and those that it reads
        self._released: tuple[dict[str, Array], dict[str, Array]] | None = None
        self._build()
        gpu.register(self)

    def _build(self) -> None:
        self._device = gpu.open_device()
        frame, arena, self.memory = self._lower(self.batch)
        self.frame, free = frame, self._device.memory()[0]
        require_room(self.batch, self.memory.total, free, lambda batch: self._lower(batch)[2].total)
        self._blocks: dict[str, Block] = {}
        self._allocate(arena.bytes)
        at = {name: block.address for name, block in self._blocks.items()}
        arrays = {name: at["arena"] + offset for name, offset in arena.offsets.items()}
        self._blocks["pack_indices"].put(frame.packs.whole())
        self._blocks["tables"].put(frame.tables.whole())
        self._report = Pinned(2 * REPORT_BYTES)
        at["report"] = self._report.address
        self._lists = write_lists(frame, at, arrays, self._optimizer, self.ranks > 1)
        self._functions = self._device.load([n.recipe for launches in self._lists.values() for n in launches])
        self._streams = self._stream, self._side, ahead, bucket = [self._device.new_stream() for _ in range(4)]
        self._average = GradientAverage(self._communicator, self.layout, self._stream, self._side, bucket)
        self._graphs: dict[str, CapturedGraph] = {}
        self._ended = [Event() for _ in range(2)]  # of the steps, by their slot
        self._staging = Staging(self.batch, self.program, self._blocks["control"], self._stream, ahead, self._read)
        self._settings = self._staging.settings
        self._settings.seed = self._seed & 0xFFFFFFFF
        if self.training:
            self._blocks["roles"].put(list_roles(self.layout, frame.frozen))

    def _lower(self, batch: int) -> tuple[Frame, Arena, Memory]:
        """The frame of a batch with its launches, the places of its arrays, and the plan's bytes."""
        frame = self._new_frame(batch=batch, hardware=self._device.hardware)
        write_launches(frame, accumulate=True)  # which uses the most arrays
        arena = lay_out(frame.lifetimes())
        return frame, arena, count_memory(frame, tuple(self._state.values()), arena.bytes)

    def _allocate(self, arena: int) -> None:
        try:
            for name, size in block_sizes(self.frame, tuple(self._state.values()), arena).items():
                self._blocks[name] = Block(size)
        except OutOfMemory:
            for block in self._blocks.values():
                block.close()
            raise

    def load(self, weights: Mapping[str, Array]) -> None:
        self._rest()
        flat = flatten_parameters(weights, self.layout)
        self._blocks["weights"].put(flat)
        if "average" in self._blocks:
            self._blocks["average"].put(flat[: self.layout.trained])
        for launch in self._lists["pack"]:
            self._launch(launch, self._stream)
        self._device.synchronize()

    def weights(self) -> dict[str, Array]:
        self._rest()
        return name_parameters(self._blocks["weights"].get(self.layout.size, np.float32), self.layout)

    def state(self) -> dict[str, Array]:
        self._rest()
        size = self.layout.trained
        arrays = {name: self._blocks[block].get(size, np.float32) for name, block in self._state.items()}
        return {**arrays, "step": np.array(self._step, np.int64)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        self._rest()
        check_state(state, self._state, self.layout.trained)
        for name, block in self._state.items():
            self._blocks[block].put(np.asarray(state[name], np.float32))
        self._step = int(state["step"])

    def predict(self, batch: PhotoBatch) -> dict[str, Array]:
        if self.training:
            raise InputError("A plan for training does not predict; compile one for inference and load the weights.")
        count = self._put_batch(batch)
        self._replay("predict")
        self._staging.send_ahead()
        self._device.synchronize()
        classes = self.program.output.shape[-1]
        logits = self._blocks["logits"].get(self.batch * classes, np.float32).reshape(self.batch, classes)
        values = {name: self.read(self.program.values[name])[:count] for name in self._outputs}
        return {"logits": logits[:count].copy(), **values}

    def read(self, value: Value, gradient: bool = False) -> Array:
        """A value of the last step, or its gradient, as float32 ``(batch, *shape)``."""
        t = self.frame.tensor(value, gradient)
        count = self.batch * t.height * t.width * t.pitch
        whole = t.address - value.channel * t.element - self._blocks["arena"].address
        if t.element == 2:
            raw = self._blocks["arena"].get(count, np.uint16, whole).astype(np.uint32) << 16
            flat = raw.view(np.float32)
        else:
            flat = self._blocks["arena"].get(count, np.float32, whole)
        array = flat.reshape(self.batch, t.height, t.width, t.pitch)[..., value.channel : value.channel + t.channels]
        if value.buffer == PHOTO:
            (top, left, _, _), (height, width, _) = self.frame.border, self.program.buffers[PHOTO]
            array = array[:, top : top + height, left : left + width]
        return np.ascontiguousarray(array).reshape(self.batch, *value.shape)

    def announce(self, batch: PhotoBatch | None) -> None:
        self._staging.announce(batch)

    def gradient(self, batch: PhotoBatch, accumulate: bool = False, share: float = 1.0) -> StepResult:
        before = self.gradients() if self._verify and accumulate else {}
        self._begin_part(batch, share, accumulate)
        result = self._queue_step("accumulate" if accumulate else "gradient", self._put_batch(batch))()
        if self._verify:
            self._check_against_reference(result.photos, before)
        return result

    def _begin_part(self, batch: PhotoBatch, share: float, accumulate: bool) -> None:
        settings = self._settings
        self._parts = self._parts + 1 if accumulate else 1
        settings.photo0 = settings.photo0 + settings.photos if accumulate else batch.first
        settings.step, settings.share, settings.factor = self._step, share, 1 / self._parts

    def _queue_step(self, name: str, photos: int) -> Callable[[], StepResult]:
        """Queue a list of launches that ends with a result; returns a function that waits for it."""
        slot = self._settings.slot
        self._replay(name)
        self._ended[slot].record(self._stream)
        self._staging.send_ahead()
        return partial(self._wait_for_result, slot, name, photos)

    def _wait_for_result(self, slot: int, name: str, photos: int) -> StepResult:
        if self.ranks > 1:  # others may be missing
            self._communicator.wait(self._ended[slot].is_over)
        else:
            self._ended[slot].wait()
        start = slot * REPORT_BYTES
        loss, hits, norm = self._report.array[start : start + 12].view(np.float32).tolist()
        return StepResult(loss, round(hits * self.ranks if name in AVERAGED else hits), photos, norm)

    def average(self, result: StepResult) -> StepResult:
        self._device.activate()
        self._blocks["totals"].put(np.array([result.loss, result.correct], np.float32))
        return self._queue_step("average", result.photos)()

    def _check_against_reference(self, photos: int, before: Mapping[str, Array]) -> None:
        """`before`: the gradients of earlier parts of the batch, which this part's were added to."""
        mode = Mode(training=True, seed=self._seed, step=self._settings.step, photo0=self._settings.photo0)
        gradients = {name: gradient - before.get(name, 0) for name, gradient in self.gradients().items()
                     if name not in self.frame.frozen}  # fmt: skip
        verify_program(self.program, self.weights(), gradients, self.read, self._precision, mode, photos)

    def gradients(self) -> dict[str, Array]:
        self._rest()
        return name_parameters(self._blocks["gradient"].get(self.layout.trained, np.float32), self.layout)

    def update(self, learning_rate: float) -> None:
        self._device.activate()
        self._set_rates(learning_rate)
        self._staging.copy_control()
        self._replay("update")
        self._device.synchronize()

    def start_step(self, batch: PhotoBatch, learning_rate: float, share: float = 1.0) -> Callable[[], StepResult]:
        if not self.asynchronous:
            return super().start_step(batch, learning_rate, share)
        self._begin_part(batch, share, False)
        self._set_rates(learning_rate)
        return partial(self._end_step, self._queue_step("step", self._put_batch(batch)))

    def _end_step(self, wait: Callable[[], StepResult]) -> StepResult:
        result = wait()
        self._step -= not result.is_finite  # the kernel did not change the weights
        return result

    def _set_rates(self, learning_rate: float) -> None:
        """Count the step and write its scalars to the control block."""
        self._step += 1
        now, settings = scalars(self._optimizer, learning_rate, self._step), self._settings
        settings.rate, settings.root = now.rate, now.root
        settings.shrink, settings.average = now.shrink, now.average

    def fits(self, size: int) -> bool:
        return fits(size, self._device.memory()[0])

    def keep_photos(self, photos: Array, stream: bool = False) -> bool:
        self._rest()
        photos = np.ascontiguousarray(photos, np.uint8)
        self._kept.keep(None)
        if stream or not self.fits(photos.nbytes):
            self.memory = replace(self.memory, photos=self._staging.make_room(self.batch * photos[:1].nbytes))
            return False
        self._kept.keep(photos)
        self.memory = replace(self.memory, photos=photos.nbytes)
        return True

    def keep_backgrounds(self, backgrounds: Backgrounds) -> None:
        self._rest()
        self._kept.keep_backgrounds(backgrounds)

    def borrow_photos(self, owner: CudaPlan) -> None:
        self._read = self._staging.kept = owner._kept

    def time_kernels(self, batch: PhotoBatch) -> list[KernelTime]:
        self._put_batch(batch)
        launches, weights = self._lists["gradient" if self.training else "predict"], self._blocks["weights"]
        before = weights.get(self.layout.size, np.float32)
        for launch in launches:
            self._launch(launch, self._stream)
        self._device.synchronize()
        times = time_launches(self._device, launches, self._stream, self._launch, self.frame.arithmetic)
        weights.put(before)  # batch norm's running statistics
        return times

    def time_inside(self, batch: PhotoBatch) -> list[tuple[Launch, float]]:
        """Launches of the captured step or prediction, and the microseconds that each adds to it; weights change."""
        self._put_batch(batch)
        return time_inside(self._lists[self._whole], self._stream, self._capture)

    def replay_milliseconds(self, batch: PhotoBatch, replays: int) -> float:
        """Mean time of a whole step (training) or prediction on the device, for benchmarks; weights change."""
        self._put_batch(batch)
        self._replay(self._whole)
        return time_replays(partial(self._replay, self._whole), self._stream, replays)

    def kernels(self) -> list[tuple[str, str, str]]:
        return list(dict.fromkeys((n.layer, n.direction, n.kernel) for n in self._lists[self._whole]))

    def close(self) -> None:
        gpu.unregister(self)
        self._free()

    def release(self) -> None:
        """Copy the state to the host and free everything, for `core.gpu.driver.device.reset`."""
        self._released = self.weights(), self.state()
        self._free()

    def restore(self) -> None:
        assert self._released is not None
        (weights, state), kept = self._released, self._kept
        self._build()
        self.load(weights)
        if self.training:
            self.load_state(state)
        if kept.photos is not None:
            self.keep_photos(kept.photos)
        if kept.backgrounds is not None:
            self.keep_backgrounds(kept.backgrounds)
        self._released = None

    def _rest(self) -> None:
        """Wait for the steps that were started: their arrays are read or replaced."""
        self._device.activate()
        self._device.synchronize()

    def _free(self) -> None:
        self._rest()
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()
        self._staging.close()
        self._average.close()
        self._report.close()
        for event in self._ended:
            event.close()
        for block in self._blocks.values():
            block.close()
        self._blocks.clear()
        self._kept.free()
        for stream in self._streams:
            gpu.check(driver.cuStreamDestroy(stream))

    def _put_batch(self, batch: PhotoBatch) -> int:
        """Queue the copies of a batch. Returns its number of photos."""
        self._device.activate()
        if self.sync_batch_norm:
            photos, settings = batch.photos_of_ranks(self._parts - 1, self.batch, self.ranks), self._settings
            settings.rank_photos, settings.counted = photos.mean(), photos[self._communicator.rank] > 0
        return self._staging.put(batch)

    def _launch(self, launch: Launch, stream: Any) -> None:
        self._functions[launch.recipe].launch(
            launch.grid, launch.block, launch.shared, stream, launch.values, launch.dependent
        )

    def _replay(self, name: str) -> None:
        """Queue a list of launches as one graph, which is captured the first time."""
        if name not in self._graphs:
            self._graphs[name] = self._capture(self._lists[name], self.ranks > 1 and name in AVERAGED)
        self._graphs[name].replay()

    def _capture(self, launches: Sequence[Launch], averaged: bool = False) -> CapturedGraph:
        for launch in launches:  # attributes cannot be set during a capture
            self._functions[launch.recipe].allow_shared(launch.shared)
        run = self._average.insert_sums(self._launch) if self.sync_batch_norm else self._launch
        if averaged:
            gradient, scores = self._blocks["gradient"].address, self._blocks["totals"].address  # scores: loss, hits
            run = self._average.insert(launches, gradient, scores, run)
        return capture_streams(launches, self._stream, self._side, run)
