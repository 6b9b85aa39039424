"""Cache of decoded photos: a memory-mapped file of uint8 squares, addressed by content.

The file with the pixels only grows. Its index is replaced atomically (`core.storage`) after the pixels were synced, so
after a crash at any moment the cache is valid and lacks at most the last seconds of decoding.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Final

import numpy as np

from core.cores import usable_cores
from core.data.array_file import MappedPages
from core.data.cache_limit import keep_limit
from core.data.cache_store import CacheStore
from core.data.dataset import Dataset, ReportProgress, Skipped, ignore
from core.data.file_lock import locked
from core.errors import DataError
from core.ops.contract import Array
from core.storage import check_writable, saving
from core.user_cache import create_private_folder, user_cache_folder

OTHER: Final = "another folder with --cache"


@dataclass(frozen=True, slots=True, eq=False)
class PhotoCache:
    """Decoded photos of a dataset.

    home: the folder of its files; photos: read-only memory-mapped uint8 ``(slots, side, side, 3)``, RGB; slots: int64
    ``(N,)``, the slot of each row of the dataset, -1 for unusable photos (identical files share one); content: uint8
    ``(N, 32)``, SHA-256 of each file, zero if unread; facts: int64 ``(N, 3)``, width and height of the original photo
    and when it was taken (seconds, `core.data.photo_format`), zero if unknown; skipped: photos that cannot be used.
    """

    home: str
    photos: Array
    slots: Array
    content: Array
    facts: Array
    skipped: tuple[Skipped, ...]

    @property
    def kept(self) -> Array:
        """Rows of the dataset with a usable photo, int64."""
        return np.flatnonzero(self.slots >= 0)

    @property
    def side(self) -> int:
        return int(self.photos.shape[1])

    def gather(self, rows: Array) -> Array:
        """Copies of the photos of these rows, uint8 ``(len(rows), side, side, 3)``."""
        MappedPages(self.photos).check()
        return np.take(self.photos, self.slots[rows], axis=0)

    def fingerprint(self, dataset: Dataset) -> str:
        """Identity of the data: SHA-256, in hex, of path, class and content of every usable photo."""
        digest = sha256()
        for row in self.kept:
            digest.update(f"{dataset.paths[row]}\0{dataset.label(row)}\0".encode(errors="surrogateescape"))
            digest.update(self.content[row].tobytes())
        return digest.hexdigest()


def open_cache(
    dataset: Dataset, side: int, *, folder: str = "", threads: int = 0, progress: ReportProgress = ignore
) -> PhotoCache:
    """Open the cache of `dataset` and decode missing photos in `threads` (0: all cores).

    `folder` contains the caches (default: the user's cache folder). Raises StorageError, InputError if they cannot be
    there. Photos decoded so far stay in the cache if `progress` raises.
    """
    home = check_home(dataset, folder)
    if not folder:
        with saving(home, OTHER):
            create_private_folder(home)  # whatever the umask: compiled kernels are saved beside it
    with _locked_store(home, side, dataset, progress) as store:
        store.fill(threads or usable_cores(), progress)
        found = PhotoCache(str(home), *store.view())
        keep_limit(home.parent, home)
        return found


def append_pictures(cache: PhotoCache, dataset: Dataset, pictures: Iterable[Array]) -> tuple[PhotoCache, Array]:
    """The cache with pictures that are no files, uint8 of its side, and their slots, int64; filled again if it was
    emptied after it was opened. Raises StorageError; DataError if photos have changed since."""
    with _locked_store(Path(cache.home), cache.side, dataset, ignore) as store:
        if store.index.photos != Path(getattr(cache.photos, "filename", "")).name:
            store.fill(usable_cores(), ignore)
            before, cache = cache, PhotoCache(cache.home, *store.view())
            if not np.array_equal(before.content, cache.content):
                raise DataError(f"Photos in {dataset.root} have changed since they were read. Start again.")
        slots = store.append_pictures(pictures)
        return replace(cache, photos=store.map_photos()), slots


@contextmanager
def _locked_store(home: Path, side: int, dataset: Dataset, progress: ReportProgress) -> Iterator[CacheStore]:
    """The store of a cache folder, while this process has its lock. Raises StorageError."""
    with saving(home, OTHER):
        home.mkdir(parents=True, exist_ok=True)
        with locked(home / f"{side}.lock", lambda: progress(0, 0)):
            yield CacheStore(home, side, dataset)


def check_home(dataset: Dataset, folder: str) -> Path:
    """The folder of this photo folder's caches, not created. Raises InputError if they cannot be there."""
    base = Path(folder).absolute() if folder else user_cache_folder()
    root = Path(dataset.root)
    if _lies_among(base, root, dataset):
        raise DataError(f"The cache folder {base} is inside the photo folder {root}. Choose a folder outside it with "
                        "--cache.")
    slug = re.sub(r"[^A-Za-z0-9]+", "-", root.name).strip("-")[:40] or "photos"
    mark = blake2b(dataset.root.encode(errors="surrogateescape"), digest_size=6).hexdigest()
    home = base / f"{slug}-{mark}"
    check_writable(home, OTHER)
    return home


def _lies_among(base: Path, root: Path, dataset: Dataset) -> bool:
    """True if `base` is within the folder of photos or, for a manifest, within a folder below its own that has some."""
    base, root = (Path(os.path.realpath(path)) for path in (base, root))  # a link leads into the photo folder too
    if not base.is_relative_to(root) or any(part.startswith(".") for part in base.relative_to(root).parts):
        return False
    if not dataset.listed:
        return True
    inner = base.relative_to(root).parts
    folders = {"/".join(inner[:count]) for count in range(1, len(inner) + 1)}
    return any(os.path.normpath(path).replace(os.sep, "/").rpartition("/")[0] in folders for path in dataset.paths)
