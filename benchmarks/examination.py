"""Time of one examination: from the file to verdict, masks and diseased share.

    python -m benchmarks.examination [resources/models/leaves.safetensors] [--photos $LEAFCLINIC_DATA/leaves]

Takes 64 photos of the validation split, spread over crops, and 12-megapixel photos composed of several leaves, in which
five are found and diagnosed. The median and the 95th percentile go to benchmarks/results. Run it on a machine that does
nothing else: it takes 35 s of processor time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from benchmarks.pack_photos import chosen_rows
from benchmarks.record import Row, make_row, write_results
from benchmarks.several_leaves import composed_photos
from core.data.photo import decode, read_bytes
from core.diagnosis.examination import Examiner
from core.diagnosis.model_file import ModelFile, read_model

WANTED, WANTED_LEAVES = 100.0, 300.0
"""Milliseconds a photo may take on two cores: of one leaf, and of several."""
PHOTOS = 64
WARM_UP = 4
COMPOSED, LEAVES, PIXELS = 90, 5, 12e6
"""Composed photos, of which those count in which so many leaves are diagnosed; and pixels of each."""


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


def leaves_times(model: ModelFile, data: Path) -> np.ndarray:
    """Milliseconds of each composed photo with `LEAVES` diagnosed leaves after the first few, from the file."""
    examiner, times = Examiner(model), []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/photo.jpg"
        for composed in composed_photos(data, "val", COMPOSED, 5)[0]:
            rgb = composed.photo
            scale = (PIXELS / rgb[..., 0].size) ** 0.5
            cv2.imwrite(path, cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)[..., ::-1])
            found, _ = examiner.examine_file(path, leaves=True)
            if len(found.leaves) == LEAVES:
                times.append(found.milliseconds)
    examiner.close()
    return np.array(times[WARM_UP:])


def rows_of(name: str, times: np.ndarray, wanted: float) -> Sequence[Row]:
    """The median and the 95th percentile."""
    figures = {"median": np.median(times), "95 % are faster": np.quantile(times, 0.95)}
    return [make_row(f"{name}, {which}", float(ms), {"wanted": wanted}, "ms") for which, ms in figures.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", default=Path("resources/models/leaves.safetensors"))
    parser.add_argument("--photos", type=Path, default=Path(os.environ.get("LEAFCLINIC_DATA", "")) / "leaves")
    options = parser.parse_args()
    rows = chosen_rows(options.photos / "manifest.csv", ["val"])
    paths = [str(options.photos / row["path"]) for row in rows[:: max(len(rows) // (PHOTOS + WARM_UP), 1)]]
    model = read_model(options.model)
    times, leaves = examination_times(model, paths), leaves_times(model, options.photos.parent)
    write_results("examination", [
        *rows_of("examine one photo", times, WANTED),
        *rows_of("examine a 12-megapixel photo of five leaves", leaves, WANTED_LEAVES),
    ], model=options.model.name, photos=len(times), photos_of_leaves=len(leaves))  # fmt: skip


if __name__ == "__main__":
    main()
