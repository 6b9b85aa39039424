"""Batches on their way to the device: settings, labels, rows and photos through pinned memory."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from core.device import PhotoBatch
from core.errors import InputError
from core.gpu.control import Control
from core.gpu.memory import Block, Pinned, copy_in
from core.ops.contract import Array


@final
class Staging:
    """The control block's host side, and room for photos that are streamed; nothing grows after the largest batch."""

    def __init__(self, batch: int, block: Block, stream: Any) -> None:
        self._batch, self._block, self._stream = batch, block, stream
        self._pinned = Pinned(block.size)
        self.control = Control(self._pinned.array, batch)
        self._photos: tuple[Block, Pinned] | None = None

    def put(self, batch: PhotoBatch, kept: Array | None, kept_address: int) -> int:
        """Queue the copies of a batch; gives the number of photos. Raises InputError where it does not fit."""
        count, photos = len(batch.rows), batch.photos
        source = kept if photos is None else photos
        if source is None:
            raise InputError("This batch names photos by index, but no photos were put on the GPU (keep_photos).")
        if source.ndim != 4 or source.shape[3] != 3 or not 1 <= count <= self._batch:
            raise InputError(f"This plan takes 1 to {self._batch} photos of (height, width, 3) uint8 at a time.")
        c, settings = self.control, self.control.settings
        settings["photos"] = count
        settings["source_height"], settings["source_width"] = source.shape[1:3]
        settings["source"] = kept_address if photos is None else self._stream_photos(photos)
        c.rows[:count] = batch.rows
        c.labels[:count] = batch.labels
        c.index[:count] = np.arange(count) if batch.index is None else batch.index
        self.copy_control()
        return count

    def copy_control(self) -> None:
        """Queue the copy of the control block."""
        copy_in(self._block, 0, self._pinned, 0, self._pinned.size, self._stream)

    def _stream_photos(self, photos: Array) -> int:
        """Queue the copy of photos through pinned memory; gives their address on the device."""
        size = photos.nbytes
        if self._photos is None or self._photos[0].size < size:
            self._close_photos()
            self._photos = (Block(size), Pinned(size))
        block, pinned = self._photos
        pinned.array[:size].reshape(photos.shape)[...] = photos
        copy_in(block, 0, pinned, 0, size, self._stream)
        return block.address

    def _close_photos(self) -> None:
        for thing in self._photos or ():
            thing.close()
        self._photos = None

    def close(self) -> None:
        """Give the memory back."""
        self._close_photos()
        self._pinned.close()
