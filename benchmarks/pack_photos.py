"""Pack a photo folder with a manifest into tar parts of bounded size, to carry it to a training machine.

    python -m benchmarks.pack_photos $LEAFCLINIC_DATA/leaves --out .carry/leaves --splits train,val --without rice

On the other machine every part is unpacked into one folder (`tar -xzf part-0.tar.gz -C leaves`), in any
order; the result is a photo folder with a manifest that holds the packed rows only.
"""

from __future__ import annotations

import argparse
import csv
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

MEBIBYTE = 1 << 20
TAR_BLOCK = 1024
"""Bytes a member's header and padding cost at most, before compression."""


def chosen_rows(manifest: Path, splits: Iterable[str], without: Iterable[str]) -> list[dict[str, str]]:
    """Rows of the manifest in these splits, less the crops named; photos keep the manifest's order."""
    splits, without = set(splits), set(without)
    with manifest.open(newline="", encoding="utf-8") as file:
        return [r for r in csv.DictReader(file) if r["split"] in splits and r["crop"] not in without]


def parts_of(rows: list[dict[str, str]], root: Path, limit: int) -> list[list[dict[str, str]]]:
    """Rows in order, cut so that no part's photos take more than `limit` bytes."""
    parts: list[list[dict[str, str]]] = [[]]
    filled = 0
    for row in rows:
        size = (root / row["path"]).stat().st_size + TAR_BLOCK // 4
        if filled + size > limit and parts[-1]:
            parts.append([])
            filled = 0
        parts[-1].append(row)
        filled += size
    return parts


def write_part(path: Path, rows: list[dict[str, str]], root: Path, manifest: bytes | None) -> None:
    """One gzipped tar of photos; the first part also holds the manifest."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        if manifest is not None:
            entry = tarfile.TarInfo("manifest.csv")
            entry.size = len(manifest)
            tar.addfile(entry, io.BytesIO(manifest))
        for row in rows:
            tar.add(root / row["path"], arcname=row["path"], recursive=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", default="train,val")
    parser.add_argument("--without", default="", help="crops left out, separated by commas")
    parser.add_argument("--limit", type=int, default=58, help="largest part, MiB")
    options = parser.parse_args()
    rows = chosen_rows(options.root / "manifest.csv", options.splits.split(","), options.without.split(","))
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts_of(rows, options.root, options.limit * MEBIBYTE)):
        path = options.out / f"part-{number}.tar.gz"
        write_part(path, part, options.root, text.getvalue().encode() if number == 0 else None)
        print(f"{path}: {len(part)} photos, {path.stat().st_size / MEBIBYTE:.1f} MiB")


if __name__ == "__main__":
    main()
