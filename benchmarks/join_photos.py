"""Join the photo packs `leaves` and `field` into one folder: what the shipped model is trained and evaluated on.

    python -m benchmarks.join_photos $LEAFCLINIC_DATA --out /tmp/joined
    python -m benchmarks.join_photos $LEAFCLINIC_DATA --out /tmp/permissive --permissive

The folder has a manifest and links to both packs. Photos with several labels, `complex` and unnamed diseases are
excluded. Crops in `UNKNOWN` are never trained on: they have the split `unknown`, or `unknown_test` where the pack says
test.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from collections.abc import Iterable
from pathlib import Path

from benchmarks.pack_photos import encode_manifest

PACKS = ("leaves", "field")
COLUMNS = ("path", "crop", "condition", "group", "split", "setting", "source", "licence", "pack")
UNKNOWN = ("rice", "soybean", "wheat")
"""Crops that evaluate the rejection of unknown crops; field photos of strawberry do so too: most show whole plants."""
UNUSABLE = ("complex",)
"""Upstream's word for too many diseases to tell apart."""
PERMISSIVE = ("background", "bean", "blackgram", "chilli", "citrus", "mango")
"""Crops whose photos have a stated permissive licence and do not come from PlantVillage, PlantDoc or a competition."""
VALIDATION_SHARE = 0.15
"""Share of the groups of `field_train` that validate; 0.3 in `ship_detector`: it has few boxed photos."""


def split_of(row: dict[str, str], pack: str) -> str:
    """train, val, test, field_test, unknown or unknown_test."""
    split = row["split"]
    if row["crop"] in UNKNOWN or (pack == "field" and row["crop"] == "strawberry"):
        return "unknown_test" if split.endswith("test") else "unknown"
    if split == "field_train":
        return "val" if share_of(row["group"]) < VALIDATION_SHARE else "train"
    return split


def share_of(group: str) -> float:
    """A number from 0 to 1 that depends on the group's name only."""
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") / 2**32


def is_usable(row: dict[str, str], pack: str) -> bool:
    """Whether the photo has one named condition; unknown crops need none."""
    if row["crop"] == "mixed" or (pack == "field" and row["crop"] == "rice" and row["condition"] == "brown_spot"):
        return False  # several crops on one list; photos that the first pack has too
    if split_of(row, pack).startswith("unknown"):
        return True
    return "+" not in row["condition"] and row["condition"] not in UNUSABLE


def joined_rows(data: Path, crops: Iterable[str] = ()) -> list[dict[str, str]]:
    """Rows of both packs with paths below their common folder; `crops`: only these."""
    found, crops = [], set(crops)
    for pack in PACKS:
        with (data / pack / "manifest.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if is_usable(row, pack) and (not crops or row["crop"] in crops):
                    changed = {"path": f"{pack}/{row['path']}", "group": f"{pack}:{row['group']}", "pack": pack}
                    found.append({**row, **changed, "split": split_of(row, pack)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--permissive", action="store_true", help="only photos with a stated permissive licence")
    options = parser.parse_args()
    rows = joined_rows(options.data, PERMISSIVE if options.permissive else ())
    options.out.mkdir(parents=True, exist_ok=True)
    for pack in PACKS:
        link = options.out / pack
        link.unlink(missing_ok=True)
        link.symlink_to((options.data / pack).absolute(), target_is_directory=True)
    (options.out / "manifest.csv").write_bytes(encode_manifest(rows, COLUMNS))
    counts = {split: sum(row["split"] == split for row in rows) for split in sorted({row["split"] for row in rows})}
    print(f"{options.out / 'manifest.csv'}: {counts}")


if __name__ == "__main__":
    main()
