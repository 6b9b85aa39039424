"""Copies batches to the device: settings, labels, augmentation parameters, targets and photos, through pinned memory.

At most two steps are queued: the one that computes and the next. So there are two control blocks on the host, and three
buffers for photos that are not on the device, each on both: the photos announced for the step after are copied to the
third.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from core.device import STREAM_BUFFERS, PhotoBatch
from core.errors import InputError
from core.gpu.compilation.cuda import driver
from core.gpu.control import Control, Settings
from core.gpu.driver.device import check
from core.gpu.driver.memory import Block, Pinned
from core.gpu.graph_capture import Event
from core.gpu.kept_photos import KeptPhotos
from core.ops.contract import Array
from core.program import Program


class Buffer:
    """Memory for one batch of photos, on the host and on the device."""

    def __init__(self, size: int) -> None:
        self.block, self.pinned, self.ready = Block(size), Pinned(size), Event()
        self.ahead: Array | None = None
        """The photos copied ahead of their step, until it uses them."""

    def send(self, photos: Array, stream: Any) -> None:
        """Copy photos to pinned memory and queue their copy to the device."""
        size = photos.nbytes
        self.pinned.array[:size].reshape(photos.shape)[...] = photos
        self.block.queue_from(self.pinned, size, stream)

    def close(self) -> None:
        self.block.close()
        self.pinned.close()
        self.ready.close()


class Staging:
    """The control blocks on the host, and buffers for streamed photos, which grow up to the largest batch.

    program: that of the plan; block: the control block on the device; stream: the stream of the steps; side: a stream
    for photos copied ahead; kept: what batches without photos name. `settings` are copied with each batch.
    """

    def __init__(self, batch: int, program: Program, block: Block, stream: Any, side: Any, kept: KeptPhotos) -> None:
        self._batch, self._program, self._block, self._stream, self._side = batch, program, block, stream, side
        self.kept = kept
        self._pinned = [Pinned(block.size) for _ in range(2)]
        self._controls = [Control(pinned.array, batch, program.target_size) for pinned in self._pinned]
        self.settings = Settings(share=1, factor=1)
        self._buffers: list[Buffer] = []
        self._next = 0
        self._announced: PhotoBatch | None = None
        self._checked: tuple[Any, ...] = ()
        """The batch that was checked last, and the photos and backgrounds with which it was."""

    def put(self, batch: PhotoBatch) -> int:
        """Queue the copies of a batch. Returns its number of photos. Raises InputError if it does not fit."""
        self._check(batch)
        count, photos = len(batch.augmentation), batch.photos
        settings = self.settings
        settings.photos, settings.slot = count, 1 - settings.slot
        self.kept.write_to(settings)
        if photos is not None:
            settings.source = self._stream_photos(photos), *photos.shape[1:3]
        c = self._controls[settings.slot]
        c.augmentation[:count] = batch.augmentation
        c.labels[:count] = batch.labels
        if batch.targets is not None:
            c.targets[:count] = batch.targets
        c.index[:count] = np.arange(count) if batch.index is None else batch.index
        self.copy_control()
        return count

    def copy_control(self) -> None:
        """Queue the copy of the settings, with labels, augmentation and targets of the last batch."""
        slot = self.settings.slot
        self._controls[slot].copy_settings(self.settings)
        self._block.queue_from(self._pinned[slot], self._block.size, self._stream)

    def _check(self, batch: PhotoBatch) -> None:
        """`PhotoBatch.check`, once for each batch."""
        given = batch, self.kept.photos, self.kept.backgrounds
        if not self._checked or any(one is not other for one, other in zip(given, self._checked, strict=True)):
            batch.check(self.kept.photos, self._batch, self.kept.backgrounds, self._program)
            self._checked = given

    def announce(self, batch: PhotoBatch | None) -> None:
        """Announce the batch after the next."""
        self._announced = batch

    def send_ahead(self) -> None:
        """Check the announced batch and copy its photos to the free buffer, while the steps queued before compute."""
        batch, self._announced, self._checked = self._announced, None, ()
        if batch is None:
            return
        with suppress(InputError):  # its own step raises it
            self._check(batch)
        photos = batch.photos
        if photos is None or (self._buffers and self._buffers[0].block.size < photos.nbytes):
            return  # the buffers are in use: `put` enlarges them
        self.make_room(photos.nbytes)
        buffer = self._buffers[self._next]
        buffer.send(photos, self._side)
        buffer.ready.record(self._side)
        buffer.ahead = photos

    def _stream_photos(self, photos: Array) -> int:
        """Address of the photos on the device; their copy is queued now unless they were copied ahead.

        The step that used the next buffer is over (at most one is under way), so its memory may be written.
        """
        self.make_room(photos.nbytes)
        buffer = self._buffers[self._next]
        buffer.ready.hold(self._stream)  # also for a copy that no step used: it must not arrive later
        if buffer.ahead is None or _key(buffer.ahead) != _key(photos):
            buffer.send(photos, self._stream)
        buffer.ahead = None
        self._next = (self._next + 1) % STREAM_BUFFERS
        return buffer.block.address

    def make_room(self, size: int) -> int:
        """Make buffers for batches of `size` bytes. Returns their bytes on the device."""
        if not self._buffers or self._buffers[0].block.size < size:
            check(driver.cuStreamSynchronize(self._stream))
            self._close_buffers()
            self._buffers = [Buffer(size) for _ in range(STREAM_BUFFERS)]
        return sum(buffer.block.size for buffer in self._buffers)

    def _close_buffers(self) -> None:
        for buffer in self._buffers:
            buffer.close()
        self._buffers = []

    def close(self) -> None:
        self._announced, self._checked = None, ()
        self._close_buffers()
        for pinned in self._pinned:
            pinned.close()


def _key(photos: Array) -> tuple[int, tuple[int, ...]]:
    """Memory of the photos: a batch sliced twice from the same photos is two arrays with the same memory."""
    return int(photos.__array_interface__["data"][0]), photos.shape
