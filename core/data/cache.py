"""Photos decoded once into a memory-mapped file of uint8 squares, found again by content.

The file with the pixels only grows; the index beside it says which slots are good and is replaced
whole (`core.storage`), after the pixels were synced. So whatever moment the program is killed at, the
next run finds a sound cache that lacks at most the last seconds of decoding.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import BinaryIO, Final, final

import numpy as np

from core.data.cache_index import NO_PHOTO, CacheIndex, file_key, read_index, write_index
from core.data.dataset import Cancelled, Dataset, IsCancelled, ReportProgress, Skipped
from core.data.file_lock import locked
from core.data.photo import PhotoError, check, content_key, decode_checked, long_path, read_bytes
from core.data.places import user_cache_folder
from core.data.texts import readable
from core.errors import DataError, StorageError
from core.ops.contract import Array
from core.storage import storage_error

CHUNK: Final = 16
"""Photos per task of a decoding thread: 0.6 ms each, so that the hand-over (0.05 ms) does not count."""
SAVE_SECONDS: Final = 5.0
SPARE_BYTES: Final = 64 << 20
"""Left free on the disk for everybody else."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class PhotoCache:
    """Decoded photos of a dataset.

    photos: read-only uint8 ``(slots, side, side, 3)`` RGB on the disk, mapped; slots: int64 ``(N,)``,
    the slot of each row of the dataset, -1 where it cannot be used (equal files share one); content:
    uint8 ``(N, 32)`` SHA-256 of each file, zero where it could not be read; sizes: int32 ``(N, 2)`` width
    and height of each file's photo, zero where there is none; skipped: rows without a photo.
    """

    photos: Array
    slots: Array
    content: Array
    sizes: Array
    skipped: tuple[Skipped, ...]

    @property
    def kept(self) -> Array:
        """Rows of the dataset that have a photo, int64."""
        return np.flatnonzero(self.slots >= 0)

    @property
    def side(self) -> int:
        """Pixels along each side."""
        return int(self.photos.shape[1])

    def gather(self, rows: Array) -> Array:
        """Copies of the photos of these rows, uint8 ``(len(rows), side, side, 3)``."""
        return np.take(self.photos, self.slots[rows], axis=0)

    def fingerprint(self, dataset: Dataset) -> str:
        """SHA-256 over path, class and content of every usable row, in hex: changes when the data do."""
        digest = sha256()
        for row in self.kept:
            digest.update(f"{dataset.paths[row]}\0{dataset.label(row)}\0".encode(errors="surrogateescape"))
            digest.update(self.content[row].tobytes())
        return digest.hexdigest()


def open_cache(
    dataset: Dataset,
    side: int,
    *,
    folder: str = "",
    threads: int = 0,
    progress: ReportProgress | None = None,
    cancelled: IsCancelled | None = None,
) -> PhotoCache:
    """The decoded photos of `dataset`; those not yet in the cache are decoded on `threads` (0: all cores).

    `folder` is where caches are kept (default: the user's cache folder). Raises StorageError, DataError
    for a folder among the photos, Cancelled (what was decoded is kept).
    """
    home = _home(dataset, folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with locked(home / f"{side}.lock", lambda: _stop_if(cancelled)):
            store = _Store(home, side)
            store.fill(dataset, threads or os.cpu_count() or 1, progress, cancelled)
            return store.view(dataset)
    except OSError as error:
        raise storage_error(home, error) from error


def _home(dataset: Dataset, folder: str) -> Path:
    """The folder of this dataset's caches: one for each root of photos."""
    base = Path(folder).expanduser().absolute() if folder else user_cache_folder()
    root = Path(dataset.root)
    if base.is_relative_to(root) and not any(p.startswith(".") for p in base.relative_to(root).parts):
        raise DataError(f"The cache folder {base} lies among the photos in {root}. Choose one outside with --cache.")
    slug = re.sub(r"[^A-Za-z0-9]+", "-", root.name).strip("-")[:40] or "photos"
    mark = blake2b(dataset.root.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    return base / f"{slug}-{mark}"


def _stop_if(cancelled: IsCancelled | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled("Decoding the photos was stopped; what is done is kept.")


@final
@dataclass(frozen=True, slots=True)
class _Decoded:
    """What became of one file. `lasting` reasons lie in its content, others (no right to read) may pass."""

    row: int
    content: bytes
    pixels: Array | None
    reason: str
    size: tuple[int, int] = (0, 0)
    lasting: bool = True


@final
class _Store:
    """The files of one cache while its lock is held."""

    def __init__(self, home: Path, side: int) -> None:
        self.home, self.side = home, side
        self.path = home / f"{side}.index"
        index = read_index(self.path, side)
        bytes_needed = index.used * self.photo_bytes if index else 0
        if index is None or not _is_at_least(home / index.photos, bytes_needed):
            # a new name: another process may have the old pixels mapped
            index = CacheIndex(f"{side}-{time.time_ns():x}.photos")
            (home / index.photos).touch()
            self._remove_others(index.photos)
        self.index = index
        self.keys: list[bytes | None] = []
        self.passing: dict[int, str] = {}

    @property
    def photo_bytes(self) -> int:
        return self.side * self.side * 3

    def _remove_others(self, keep: str) -> None:
        for old in self.home.glob(f"{self.side}-*.photos"):
            if old.name != keep:
                try:
                    old.unlink()
                except OSError:  # mapped by another process on Windows; the next time will do
                    continue

    def fill(
        self, dataset: Dataset, threads: int, progress: ReportProgress | None, cancelled: IsCancelled | None
    ) -> None:
        """Decode what is missing and append it."""
        self.keys = [self._file_key(dataset, row, cancelled) for row in range(len(dataset))]
        missing = [row for row, key in enumerate(self.keys) if key is not None and key not in self.index.files]
        total = len(self.keys)
        done = total - len(missing)
        if progress is not None:
            progress(done, total)
        if not missing:
            return
        self._require_space(len(missing))
        with (self.home / self.index.photos).open("r+b") as file:
            file.seek(self.index.used * self.photo_bytes)
            try:
                self._append_all(file, dataset, missing, threads, progress, cancelled)
            finally:
                self._save(file)

    def _append_all(
        self,
        file: BinaryIO,
        dataset: Dataset,
        missing: list[int],
        threads: int,
        progress: ReportProgress | None,
        cancelled: IsCancelled | None,
    ) -> None:
        total, done = len(self.keys), len(self.keys) - len(missing)
        saved, pause = time.monotonic(), SAVE_SECONDS
        for chunk in _decode_all(dataset, missing, self.side, self.index.slots, threads):
            for item in chunk:
                self._append(file, item)
            done += len(chunk)
            if progress is not None:
                progress(done, total)
            _stop_if(cancelled)
            if time.monotonic() - saved > pause:
                begun = time.monotonic()
                self._save(file)
                saved = time.monotonic()
                pause = max(SAVE_SECONDS, 20 * (saved - begun))

    def _append(self, file: BinaryIO, item: _Decoded) -> None:
        index = self.index
        if item.reason and not item.lasting:
            self.passing[item.row] = item.reason
            return
        key = self.keys[item.row]
        assert key is not None
        if item.content not in index.slots:
            if item.reason:
                index.slots[item.content] = NO_PHOTO
                index.reasons[item.content] = item.reason
            else:
                assert item.pixels is not None
                file.write(item.pixels.data.cast("B"))
                index.slots[item.content] = index.used
                index.sizes.append(item.size)
        index.files[key] = item.content

    def _save(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())
        write_index(self.path, self.index, self.side)

    def _file_key(self, dataset: Dataset, row: int, cancelled: IsCancelled | None) -> bytes | None:
        if row % 4096 == 0:
            _stop_if(cancelled)
        try:
            state = os.stat(long_path(dataset.path(row)))
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            said = getattr(error, "strerror", None) or error
            self.passing[row] = "The file does not exist." if missing else f"The file cannot be read ({said})."
            return None
        return file_key(dataset.paths[row], state.st_size, state.st_mtime_ns)

    def _require_space(self, photos: int) -> None:
        needed = photos * self.photo_bytes + SPARE_BYTES
        free = shutil.disk_usage(self.home).free
        if free < needed:
            raise StorageError(
                f"The decoded photos need {needed / 1e9:.2f} GB in {self.home}, where {free / 1e9:.2f} GB are free. "
                "Make room, or name a folder on another disk with --cache."
            )

    def view(self, dataset: Dataset) -> PhotoCache:
        """The dataset's photos as they lie in the file."""
        slots = np.full(len(dataset), NO_PHOTO, np.int64)
        content = np.zeros((len(dataset), 32), np.uint8)
        sizes = np.zeros((len(dataset), 2), np.int32)
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
                sizes[row] = self.index.sizes[slots[row]]
        shape = (self.index.used, self.side, self.side, 3)
        if not self.index.used:
            return PhotoCache(np.empty(shape, np.uint8), slots, content, sizes, tuple(skipped))
        photos = np.memmap(self.home / self.index.photos, np.uint8, "r", shape=shape)
        return PhotoCache(photos, slots, content, sizes, tuple(skipped))


def _is_at_least(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except OSError:
        return False


def _decode_all(
    dataset: Dataset, rows: list[int], side: int, known: dict[bytes, int], threads: int
) -> Iterator[list[_Decoded]]:
    """Decode in threads, in order, at most a few chunks ahead of who takes them."""
    waiting: deque[Future[list[_Decoded]]] = deque()
    with ThreadPoolExecutor(threads, "decode") as pool:
        try:
            for start in range(0, len(rows), CHUNK):
                part = [(row, dataset.path(row)) for row in rows[start : start + CHUNK]]
                waiting.append(pool.submit(_decode_chunk, part, side, known))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _decode_chunk(part: list[tuple[int, str]], side: int, known: dict[bytes, int]) -> list[_Decoded]:
    return [_decode_one(row, path, side, known) for row, path in part]


def _decode_one(row: int, path: str, side: int, known: dict[bytes, int]) -> _Decoded:
    try:
        data = read_bytes(path)
    except PhotoError as error:
        return _Decoded(row, b"", None, str(error), lasting=False)
    content = content_key(data)
    if content in known:
        return _Decoded(row, content, None, "")
    try:
        header = check(data)
        return _Decoded(row, content, decode_checked(data, header, side), "", (header.width, header.height))
    except PhotoError as error:
        return _Decoded(row, content, None, str(error))
