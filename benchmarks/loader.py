"""Photos per second of everything before the network: scan, decode, open, gather with augmentation, near-copies.

    python -m benchmarks.loader [--data $LEAFCLINIC_DATA/leaves/manifest.csv] [--where crop=apple]

The peer is PyTorch's DataLoader that decodes each photo again in every epoch with the same decoder, in as many
worker processes as there are cores, and does nothing else to it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import Row, make_row, write_results
from core.data.cache import PhotoCache, open_cache
from core.data.dataset import Dataset
from core.data.loader import Loader
from core.data.near_duplicates import find_pairs, hash_photos
from core.data.photo import decode, read_bytes
from core.data.source import open_photos
from core.data.synthetic import write_demo

SIDE = 224
BATCH = 32


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and its seconds."""
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def loader_speed(dataset: Dataset, cache: PhotoCache, augment: str, resident: bool) -> float:
    """Photos per second that batches come at when nobody computes with them: the middle of three epochs."""
    slots = cache.slots[cache.kept]
    loader = Loader(
        cache.photos, slots, dataset.labels[cache.kept], batch=BATCH, size=SIDE, training=True, augment=augment,
        resident=resident,
    )  # fmt: skip
    speeds = []
    for epoch in range(3):
        count, seconds = timed(lambda number=epoch: sum(len(b.labels) for b in loader.batches(number)))
        speeds.append(count / seconds)
    return statistics.median(speeds)


def peer_speed(dataset: Dataset) -> dict[str, float]:
    """Photos per second of PyTorch's DataLoader with the same decoder; empty where there is no PyTorch."""
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        return {}

    class Photos:
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, row: int) -> tuple[Any, int]:
            return decode(read_bytes(dataset.path(row)), SIDE), int(dataset.labels[row])

    batches = DataLoader(Photos(), BATCH, shuffle=True, num_workers=os.cpu_count() or 1, persistent_workers=True)
    for _ in batches:  # the first epoch starts the workers
        pass
    count, seconds = timed(lambda: sum(len(labels) for _, labels in batches))
    return {"torch DataLoader, decoding again": count / seconds}


def measure(data: str, where: tuple[str, ...]) -> list[Row]:
    """All rows of the table."""
    rows: list[Row] = []

    def note(name: str, ours: float, peers: dict[str, float] | None = None) -> None:
        rows.append(make_row(name, ours, peers or {}, "photos/s"))

    dataset, seconds = timed(lambda: open_photos(data, where=where))
    note(f"scan {Path(data).suffix or 'folder'}", len(dataset) / seconds)
    with tempfile.TemporaryDirectory(prefix=".leafclinic-") as folder:
        cache, seconds = timed(lambda: open_cache(dataset, SIDE, folder=folder))
        note(f"decode to an empty cache {SIDE} (cold)", len(cache.kept) / seconds)
        _, seconds = timed(lambda: open_cache(dataset, SIDE, folder=folder))
        note(f"open a full cache {SIDE} (warm)", len(cache.kept) / seconds)
        peers = peer_speed(dataset)
        note(f"batches b{BATCH} augment standard (warm)", loader_speed(dataset, cache, "standard", False), peers)
        note(f"batches b{BATCH} augment none (warm)", loader_speed(dataset, cache, "none", False), peers)
        note(f"batches b{BATCH} augment standard, photos on the device",
             loader_speed(dataset, cache, "standard", True), peers)
        kept = cache.kept
        pairs, seconds = timed(lambda: find_pairs(hash_photos(cache.photos, cache.slots[kept]), cache.content[kept]))
        note(f"near-copies ({len(pairs)} found)", len(kept) / seconds)
    return rows


def main() -> None:
    leaves = Path(os.environ.get("LEAFCLINIC_DATA", "")) / "leaves" / "manifest.csv"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(leaves) if leaves.is_file() else "", help="folder or manifest")
    parser.add_argument("--where", action="append", default=[], help="column=value")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or str(write_demo(Path(folder) / "demo", photos_per_class=250, side=SIDE))
        write_results("loader", measure(data, tuple(options.where)))


if __name__ == "__main__":
    main()
