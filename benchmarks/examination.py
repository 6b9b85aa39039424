"""Time of one examination: from the file to verdict, class maps, masks and percentage.

    python -m benchmarks.examination [resources/models/leaves.safetensors] [--photos $LEAFCLINIC_DATA/leaves]

Takes 64 photos of the validation split, spread over crops; the median and the 95th percentile go to
benchmarks/results. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.pack_photos import chosen_rows
from benchmarks.record import Row, write_results
from core.data.photo import decode, read_bytes
from core.diagnosis.examination import Examiner
from core.diagnosis.model_file import ModelFile, read_model

WANTED = 150.0
"""Milliseconds a photo may take on two cores."""
PHOTOS = 64
WARM_UP = 4


def examination_times(model: ModelFile, paths: list[str]) -> np.ndarray:
    """Milliseconds of each photo after the first few."""
    examiner = Examiner(model)
    times = []
    for path in paths:
        begin = time.perf_counter()
        examiner.examine(decode(read_bytes(path)))
        times.append(1000 * (time.perf_counter() - begin))
    examiner.close()
    return np.array(times[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=Path("resources/models/leaves.safetensors"))
    parser.add_argument("--photos", type=Path, default=Path(os.environ.get("LEAFCLINIC_DATA", "")) / "leaves")
    options = parser.parse_args()
    rows = chosen_rows(options.photos / "manifest.csv", ["val"])
    paths = [str(options.photos / row["path"]) for row in rows[:: max(len(rows) // (PHOTOS + WARM_UP), 1)]]
    times = examination_times(read_model(options.model), paths)
    median, late = float(np.median(times)), float(np.quantile(times, 0.95))
    write_results("examination", [
        Row("examine one photo, median", median, {"wanted": WANTED}, "ms", WANTED / median),
        Row("examine one photo, 95 % are faster", late, {"wanted": WANTED}, "ms", WANTED / late),
    ], model=options.model.name, photos=len(times))


if __name__ == "__main__":
    main()
