"""Error of the leaf and lesion masks on photos whose masks are drawn by hand, and on photos of healthy leaves.

    python -m benchmarks.severity $LEAFCLINIC_DATA
    python -m benchmarks.severity $LEAFCLINIC_DATA --splits test,field_test   # log it in test_readings.json

Wheat and potato have masks of leaf and lesions: the error is in points of the leaf's area. The other crops have lesions
only: overlap of the lesions, and error in points of the photo. A photo without a lesion in both masks is not counted
in the overlap. On a healthy leaf all area that is found diseased is error. Validation photos take
7 s of processor time.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import cv2
import numpy as np

from benchmarks.pack_photos import chosen_rows
from benchmarks.record import commit
from core.data.photo import square
from core.data.photo_reader import read_photo
from core.diagnosis.segmentation import segment
from core.diagnosis.severity import Severity
from core.ops.contract import Array

SIDE = 288
"""Side of the photos that the shipped model examines."""


def read_mask(path: Path) -> Severity:
    """The mask as it is drawn: 0 background or not marked, 128 leaf, 255 lesion."""
    marks = square(cv2.cvtColor(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), cv2.COLOR_GRAY2RGB), SIDE)[..., 0]
    return Severity(marks > 64, marks > 191)


def overlap(found: Array, drawn: Array) -> float:
    """Intersection over union; NaN where both are empty."""
    union = (found | drawn).sum()
    return float((found & drawn).sum() / union) if union else float("nan")


def measure(root: Path, row: dict[str, str]) -> dict[str, float]:
    """Figures of one photo: of a pack's row with a mask, or of a healthy leaf."""
    found = segment(read_photo(str(root / row["path"]), SIDE))
    if not row.get("mask"):
        return {"error": found.percent}
    drawn = read_mask(root / row["mask"])
    has_leaf = row["crop"] in ("wheat", "potato")
    share = found.percent - drawn.percent if has_leaf else 100 * float(found.lesions.mean() - drawn.lesions.mean())
    figures = {"error": abs(share), "bias": share, "lesion": overlap(found.lesions, drawn.lesions)}
    return figures | ({"leaf": overlap(found.leaf, drawn.leaf)} if has_leaf else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the photo packs leaves and field")
    parser.add_argument("--splits", default="val")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sources = defaultdict(list)
    for root in (options.data / "field", options.data / "leaves"):
        for row in chosen_rows(root / "manifest.csv", options.splits.split(",")):
            if row.get("mask"):
                sources[f"{row['crop']}/{row['setting']}/{row['condition']}"].append(measure(root, row))
            elif row["condition"] == "healthy":
                sources[f"healthy/{row['setting']}"].append(measure(root, row))
    table = {
        name: {"photos": len(found)} | {key: float(np.nanmean([f[key] for f in found])) for key in found[0]}
        for name, found in sorted(sources.items())
    }
    for name, figures in table.items():
        print(f"{name:26}", "  ".join(f"{key} {value:6.2f}" for key, value in figures.items()))
    if options.out:
        result = {"splits": options.splits, "commit": commit(), "sources": table}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
