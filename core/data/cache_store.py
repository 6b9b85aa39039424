"""Decodes photos in parallel and appends their pixels to a cache, while its lock is held."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from core.data.cache_index import NO_PHOTO, CacheIndex, file_key, read_index, write_index
from core.data.dataset import Dataset, ReportProgress, Skipped
from core.data.map_ahead import map_ahead
from core.data.photo import long_path
from core.data.photo_reader import READERS, ReadPhoto
from core.data.string_array import readable
from core.ops.contract import Array

CHUNK: Final = 16
"""Photos per request to a process."""
SAVE_SECONDS: Final = 5.0
SPARE_BYTES: Final = 64 << 20
"""Bytes of disk space that stay free."""


def decode_all(
    dataset: Dataset, rows: list[int], side: int, known: Collection[bytes], processes: int
) -> Iterator[list[tuple[int, ReadPhoto]]]:
    """Yield rows with their results in order, decoded at most a few chunks ahead of the consumer."""

    def decode_chunk(part: list[int]) -> list[tuple[int, ReadPhoto]]:
        with READERS.borrow() as reader:
            found = reader.read([dataset.path(row) for row in part], side, known=known)
        return list(zip(part, found, strict=True))

    processes = min(processes, READERS.most)
    chunks = (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
    return map_ahead(decode_chunk, chunks, processes, 2 * processes)


class CacheStore:
    """The files of the cache of a dataset while its lock is held."""

    def __init__(self, home: Path, side: int, dataset: Dataset) -> None:
        self.home, self.side, self.dataset = home, side, dataset
        self.path, self.photo_bytes = home / f"{side}.index", side * side * 3
        index = read_index(self.path, side)
        pixels = home / (index.photos if index else "")
        if index is None or not (pixels.is_file() and pixels.stat().st_size >= index.used * self.photo_bytes):
            # a new name: another process may have the old pixels mapped
            index = CacheIndex(f"{side}-{time.time_ns():x}.photos")
            (home / index.photos).touch()
            for old in home.glob(f"{side}-*.photos"):
                if old.name != index.photos:
                    with contextlib.suppress(OSError):  # mapped by another process on Windows: removed next time
                        old.unlink()
        self.index = index
        self.keys: list[bytes | None] = []
        self.passing: dict[int, str] = {}

    def fill(self, threads: int, progress: ReportProgress) -> None:
        """Decode and append the missing photos."""
        self.keys = [self._file_key(row, progress) for row in range(len(self.dataset))]
        missing = [row for row, key in enumerate(self.keys) if key is not None and key not in self.index.files]
        progress(len(self.keys) - len(missing), len(self.keys))
        if not missing:
            return
        known = {self.index.files[key] for key in self.keys if key is not None and key in self.index.files}
        others = self.index.used - len(known)  # perhaps of missing ones, with another name or time
        self._require_space(max(len(missing) - others, 0))
        with (self.home / self.index.photos).open("r+b") as file:
            file.seek(self.index.used * self.photo_bytes)
            try:
                self._append_all(file, missing, threads, progress)
            finally:
                self._save(file)

    def append_pictures(self, pictures: Iterable[Array]) -> Array:
        """Append those that are not in the cache yet, and return the slots of all."""
        index, slots = self.index, []
        with (self.home / index.photos).open("r+b") as file:
            file.seek(index.used * self.photo_bytes)
            for picture in pictures:
                content = sha256(picture.data).digest()
                if content not in index.slots:
                    self._require_space(1)
                    file.write(picture.data.cast("B"))
                    index.slots[content] = index.used
                    index.facts.append((0, 0, 0))
                slots.append(index.slots[content])
            self._save(file)
        return np.array(slots, np.int64)

    def _append_all(self, file: BinaryIO, missing: list[int], threads: int, progress: ReportProgress) -> None:
        total, done = len(self.keys), len(self.keys) - len(missing)
        saved, pause = time.monotonic(), SAVE_SECONDS
        for chunk in decode_all(self.dataset, missing, self.side, self.index.slots, threads):
            for row, item in chunk:
                self._append(file, row, item)
            done += len(chunk)
            progress(done, total)
            if time.monotonic() - saved > pause:
                begun = time.monotonic()
                self._save(file)
                saved = time.monotonic()
                pause = max(SAVE_SECONDS, 20 * (saved - begun))

    def _append(self, file: BinaryIO, row: int, item: ReadPhoto) -> None:
        index = self.index
        if item.reason and not item.lasting:
            self.passing[row] = item.reason
            return
        key = self.keys[row]
        assert key is not None
        if item.content not in index.slots:
            if item.reason:
                index.slots[item.content] = NO_PHOTO
                index.reasons[item.content] = item.reason
            else:
                assert item.pixels is not None
                file.write(item.pixels.data.cast("B"))
                index.slots[item.content] = index.used
                index.facts.append(item.facts)
        index.files[key] = item.content

    def _save(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())
        write_index(self.path, self.index, self.side)

    def _file_key(self, row: int, progress: ReportProgress) -> bytes | None:
        if row % 4096 == 0:
            progress(0, 0)
        try:
            file = long_path(self.dataset.path(row))
            return file_key(self.dataset.paths[row], file, os.stat(file))
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            reason = getattr(error, "strerror", None) or error
            self.passing[row] = "The file does not exist." if missing else f"The file cannot be read ({reason})."
            return None

    def _require_space(self, photos: int) -> None:
        needed = photos * self.photo_bytes + SPARE_BYTES
        if (free := shutil.disk_usage(self.home).free) < needed:
            raise OSError(errno.ENOSPC, f"decoded photos need {needed >> 20:,} MB, but only {free >> 20:,} MB are free")

    def view(self) -> tuple[Array, Array, Array, Array, tuple[Skipped, ...]]:
        """The fields of a `core.data.cache.PhotoCache`, except its home."""
        dataset = self.dataset
        slots = np.full(len(dataset), NO_PHOTO, np.int64)
        content = np.zeros((len(dataset), 32), np.uint8)
        facts = np.zeros((len(dataset), 3), np.int64)
        skipped = list(dataset.skipped)
        for row, key in enumerate(self.keys):
            found = None if key is None else self.index.files.get(key)
            if found is None:
                skipped.append(Skipped(readable(dataset.paths[row]), self.passing[row]))
                continue
            slots[row] = self.index.slots[found]
            content[row] = np.frombuffer(found, np.uint8)
            if slots[row] == NO_PHOTO:
                skipped.append(Skipped(readable(dataset.paths[row]), self.index.reasons[found]))
            else:
                facts[row] = self.index.facts[slots[row]]
        return self.map_photos(), slots, content, facts, tuple(skipped)

    def map_photos(self) -> Array:
        """All slots, read-only; an empty array if the file is empty, which cannot be mapped."""
        shape = (self.index.used, self.side, self.side, 3)
        if not self.index.used:
            return np.empty(shape, np.uint8)
        return np.memmap(self.home / self.index.photos, np.uint8, "r", shape=shape)
