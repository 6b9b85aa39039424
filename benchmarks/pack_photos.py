"""Pack a photo folder with a manifest into tar parts of bounded size, to carry it to a training machine.

    python -m benchmarks.pack_photos $LEAFCLINIC_DATA/leaves --out .carry/leaves --splits train,val --limit 38
    python -m benchmarks.pack_photos $LEAFCLINIC_DATA/leaves --out .carry/tomato --splits train,val,test --only tomato \
        --every 2 --quality 20

On the other machine every part is unpacked into one folder (`tar -xzf part-0.tar.gz -C leaves`), in any
order; the result is a photo folder with a manifest that holds the packed rows only.
"""

from __future__ import annotations

import argparse
import csv
import io
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2

MEBIBYTE = 1 << 20
TAR_BLOCK = 1024
"""Bytes a member's header and padding cost at most, before compression."""


def chosen_rows(
    manifest: Path, splits: Iterable[str], without: Iterable[str] = (), only: Iterable[str] = ()
) -> list[dict[str, str]]:
    """Rows of the manifest in these splits, of the crops `only` if given, less the crops `without`; in its order."""
    splits, without, only = set(splits), set(without), set(only)
    with manifest.open(newline="", encoding="utf-8") as file:
        return [r for r in csv.DictReader(file) if r["split"] in splits and r["crop"] not in without
                and (not only or r["crop"] in only)]  # fmt: skip


def encode_manifest(rows: Sequence[dict[str, str]], columns: Sequence[str] = (), end: str = "\n") -> bytes:
    """A manifest with these columns of the rows, in their order; all of the first row if none are given."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns or rows[0]), extrasaction="ignore" if columns else "raise",
                            lineterminator=end)  # fmt: skip
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


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


def write_part(path: Path, rows: list[dict[str, str]], root: Path, manifest: bytes | None, quality: int) -> None:
    """One gzipped tar of photos; the first part also holds the manifest. quality: of WebP, 0 keeps the files."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        if manifest is not None:
            add_bytes(tar, "manifest.csv", manifest)
        for row in rows:
            photo = root / row["path"]
            add_bytes(tar, row["path"], photo.read_bytes() if not quality else encode(photo, quality))


def add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def encode(photo: Path, quality: int) -> bytes:
    """The photo as WebP of this quality."""
    return cv2.imencode(".webp", cv2.imread(str(photo)), [cv2.IMWRITE_WEBP_QUALITY, quality])[1].tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--splits", default="train,val")
    parser.add_argument("--without", default="", help="crops left out, separated by commas")
    parser.add_argument("--limit", type=int, default=58, help="largest part, MiB")
    parser.add_argument("--only", default="", help="crops to pack, separated by commas")
    parser.add_argument("--every", type=int, default=1, help="pack every Nth photo only")
    parser.add_argument("--quality", type=int, default=0, help="encode photos as WebP of this quality")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else ()
    rows = chosen_rows(options.root / "manifest.csv", options.splits.split(","), options.without.split(","), only)
    rows = rows[:: options.every]
    manifest = encode_manifest(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts_of(rows, options.root, options.limit * MEBIBYTE)):
        path = options.out / f"part-{number}.tar.gz"
        write_part(path, part, options.root, manifest if number == 0 else None, options.quality)
        print(f"{path}: {len(part)} photos, {path.stat().st_size / MEBIBYTE:.1f} MiB")


if __name__ == "__main__":
    main()
