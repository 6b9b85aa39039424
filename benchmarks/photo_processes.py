"""Photos decoded in processes with limits, beside threads of this process without: photos per second and latencies.

    python -m benchmarks.photo_processes [--data $LEAFCLINIC_DATA/leaves] [--count 400] [--rounds 7]

The peer calls the same functions without a process: read the file, hash it (only where many photos fill a cache), check
it and decode it. Both run interleaved, in as many threads or processes as there are cores. Camera photos are made here:
12 megapixels, JPEG. "first photo" is a process's start, "as shown" the whole photo in the size that the window shows.
It takes 20 s of processor time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import cv2
import numpy as np

from benchmarks.record import Row, write_results
from core.cores import usable_cores
from core.data.cache_store import CHUNK, decode_all
from core.data.dataset import Dataset
from core.data.folder import open_folder
from core.data.photo import SQUARE, WHOLE, check, decode, read_bytes
from core.data.photo_format import taken_at
from core.data.photo_reader import READERS, read_photo

SIDE, SHOWN = 224, 1000
PEER = "threads without limits"


def decode_here(path: str, side: int = SIDE, part: str = SQUARE, hashed: bool = False) -> np.ndarray:
    """What a process does with a photo, in this one."""
    data = read_bytes(path)
    if hashed:
        sha256(data.data).hexdigest()
    header = check(data)
    taken_at(data)
    return decode(data, side, part, header)


def decode_in_threads(dataset: Dataset, rows: list[int]) -> int:
    chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        return sum(pool.map(lambda part: len([decode_here(dataset.path(row), hashed=True) for row in part]), chunks))


def decode_in_processes(dataset: Dataset, rows: list[int]) -> int:
    return sum(len(part) for part in decode_all(dataset, rows, SIDE, (), usable_cores()))


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(name: str, ours: Callable[[], object], peer: Callable[[], object], rounds: int, many: int = 1) -> Row:
    """Medians of interleaved rounds after one that is not counted: photos per second, or milliseconds for one photo."""
    ours(), peer()
    pairs = [(seconds(ours), seconds(peer)) for _ in range(rounds)]
    ratio = statistics.median(b / a for a, b in pairs)
    mine, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    if many > 1:
        return Row(name, many / mine, {PEER: many / other}, "photos/s", ratio)
    return Row(name, 1e3 * mine, {PEER: 1e3 * other}, "ms", ratio)


def write_camera_photos(folder: Path, many: int) -> list[str]:
    """JPEGs of 4000 x 3000 pixels."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(many):
        coarse = random.integers(0, 255, (75, 100, 3), np.uint8)
        photo = cv2.resize(coarse, (4000, 3000), interpolation=cv2.INTER_CUBIC)
        photo = cv2.add(photo, random.integers(0, 24, photo.shape, np.uint8))
        paths.append(str(folder / ("ab"[number % 2]) / f"{number}.jpg"))
        Path(paths[-1]).parent.mkdir(exist_ok=True, parents=True)
        cv2.imwrite(paths[-1], photo, [cv2.IMWRITE_JPEG_QUALITY, 88])
    return paths


def start_and_read(path: str) -> None:
    """A photo where no process runs yet."""
    READERS.release()
    read_photo(path, SIDE)


def measure(data: str, count: int, rounds: int) -> list[Row]:
    cv2.setNumThreads(1)
    leaves = open_folder(Path(data))
    rows = np.linspace(0, len(leaves) - 1, count).astype(int).tolist()
    leaf = leaves.path(rows[0])
    with tempfile.TemporaryDirectory() as folder:
        paths = write_camera_photos(Path(folder), 24)
        camera = open_folder(Path(folder))
        every = list(range(len(camera)))
        return [
            compare(f"{count} leaves", lambda: decode_in_processes(leaves, rows),
                    lambda: decode_in_threads(leaves, rows), rounds, count),
            compare("24 camera photos", lambda: decode_in_processes(camera, every),
                    lambda: decode_in_threads(camera, every), rounds, len(every)),
            compare("one leaf", lambda: read_photo(leaf, SIDE), lambda: decode_here(leaf), 10 * rounds),
            compare("one camera photo", lambda: read_photo(paths[0], SIDE), lambda: decode_here(paths[0]), rounds),
            compare("one camera photo, as shown", lambda: read_photo(paths[0], SHOWN, part=WHOLE),
                    lambda: decode_here(paths[0], SHOWN, part=WHOLE), rounds),
            compare("first photo", lambda: start_and_read(leaf), lambda: decode_here(leaf), rounds),
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(os.environ.get("LEAFCLINIC_DATA", ""), "leaves"))
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    write_results("photo-processes", measure(arguments.data, arguments.count, arguments.rounds))


if __name__ == "__main__":
    main()
