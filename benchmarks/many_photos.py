"""Diagnosis of very many photos: what Dask costs over one process, and photos per second with 1 and 2 workers.

    python -m benchmarks.many_photos --data $LEAFCLINIC_DATA/leaves [--photos 300 1200] [--rounds 3]
    python -m benchmarks.many_photos --data $LEAFCLINIC_DATA/leaves --gpus 4 --model leaves --photos 2000 14000

The same photos are diagnosed by one process, and by one and two workers of one thread, interleaved. Processor time is
of all processes. The cost of a photo is the difference between the two numbers of photos, so that the start (imports,
Dask's processes) is a row of its own. Rates are by the clock and include the start.

With `--gpus`, a process for each GPU computes a shard with its share of the cores; rates are by the clock, with and
without the start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.record import Row, gpu_name, make_row, write_results
from core.cores import usable_cores
from core.data.source import find_photos

KINDS = {"one process": 0, "Dask, 1 worker": 1, "Dask, 2 workers": 2}
PART = 100


def diagnose(photos: list[str], workers: int, model: str) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    with tempfile.TemporaryDirectory() as name:
        manifest = Path(name) / "photos.csv"
        manifest.write_text("\n".join(["path", *photos]) + "\n", "utf-8")
        command = [sys.executable, "-m", "core.diagnose", model, str(manifest), "--out", f"{name}/out", "--part",
                   str(PART), "--threads", "1", "--device", "cpu", "--workers", str(workers)]  # fmt: skip
        begun = time.perf_counter()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0, command
        return time.perf_counter() - begun, used.ru_utime + used.ru_stime


def seconds_of_shards(photos: list[str], gpus: int, model: str, folder: Path) -> float:
    """By the clock, of a process for each GPU."""
    manifest = folder / f"{gpus}-{len(photos)}.csv"
    manifest.write_text("\n".join(["path", *photos]) + "\n", "utf-8")
    begun = time.perf_counter()
    running = [subprocess.Popen(
        [sys.executable, "-m", "core.diagnose", model, str(manifest), "--out", f"{manifest}-out", "--part", "500",
         "--shard", f"{number + 1}/{gpus}", "--device", "cuda", "--threads", str(max(usable_cores() // gpus, 1))],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": str(number)},
    ) for number in range(gpus)]  # fmt: skip
    assert not any(process.wait() for process in running)
    return time.perf_counter() - begun


def measure_gpus(few: list[str], many: list[str], gpus: int, model: str) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        seconds_of_shards(few[:gpus], gpus, model, Path(name))  # kernels are compiled
        for count in range(1, gpus + 1):
            short, long = (seconds_of_shards(photos, count, model, Path(name)) for photos in (few, many))
            rates = {"with the start": len(many) / long, "without": (len(many) - len(few)) / (long - short)}
            print(count, rates, flush=True)
            rows += [Row(f"{count} GPUs, {kind}", rate, {}, "photos/s") for kind, rate in rates.items()]
    write_results("many_photos", rows, f"{gpu_name()}-x{gpus}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder or manifest of photos")
    parser.add_argument("--model", default="small")
    parser.add_argument("--photos", type=int, nargs=2, default=[300, 1200])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gpus", type=int, default=0)
    options = parser.parse_args()
    few, many = options.photos
    listed = [str(path) for path in find_photos([options.data])]
    photos = listed[:: max(len(listed) // many, 1)][:many]
    assert len(photos) == many, f"{options.data} has {len(listed)} photos"
    if options.gpus:
        measure_gpus(photos[:few], photos, options.gpus, options.model)
        return
    diagnose(photos[:few], 0, options.model)  # kernels are compiled
    cost: dict[str, list[float]] = {kind: [] for kind in KINDS}
    start: dict[str, list[float]] = {kind: [] for kind in KINDS}
    rate: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind, workers in KINDS.items():
            (_, small), (wall, large) = (diagnose(photos[:count], workers, options.model) for count in (few, many))
            cost[kind].append(1e3 * (large - small) / (many - few))
            start[kind].append(small - few * (large - small) / (many - few))
            rate[kind].append(many / wall)
            found = f"{cost[kind][-1]:.2f} ms a photo, start {start[kind][-1]:.1f} s, {rate[kind][-1]:.0f} photos/s"
            print(f"{kind}: {found}", flush=True)
    one, *dask = KINDS
    rows = [make_row(f"processor time of a photo, {one}", statistics.median(cost[one]),
                     {kind: statistics.median(cost[kind]) for kind in dask}, "ms"),
            Row(f"processor time of the start, {one}", statistics.median(start[one]),
                {kind: statistics.median(start[kind]) for kind in dask}, "s")]  # fmt: skip
    rows += [Row(f"photos per second, {kind}", statistics.median(rate[kind]), {}, "photos/s")
             for kind in KINDS]  # fmt: skip
    overhead = {kind: round(statistics.median(cost[kind]) / statistics.median(cost[one]) - 1, 4) for kind in dask}
    print("overhead", overhead)
    write_results("many_photos", rows, overhead=overhead, cost=cost)


if __name__ == "__main__":
    main()
