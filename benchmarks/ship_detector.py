"""Train the leaf detector and write its model file and card.

    python -m benchmarks.ship_detector pack $LEAFCLINIC_DATA --out /tmp/detector
    python -m benchmarks.ship_detector train /tmp/detector --steps 4000 --out resources/models/detector.safetensors

`pack` collects cut-out lab leaves, backgrounds and boxed photos of training and validation splits in one small folder,
which travels to a training machine. Reads no test split.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from benchmarks.composed_photos import CutLeaf, compose, compound_leaf, cut_leaf, random_background, random_shape
from benchmarks.detector_training import (
    WIDTH,
    Batch,
    Example,
    detector_graph,
    first_weights,
    make_batch,
    train,
    training_graph,
)
from benchmarks.join_photos import share_of
from core.data.photo_reader import read_photo
from core.diagnosis.leaf_detector import CHANNELS, MAPS, letterbox
from core.diagnosis.model_file import ModelFile, in_bits, read_model, write_model
from core.diagnosis.model_identity import find_model, today
from core.ops.contract import Array

LEAF_CONDITIONS: Final = ("healthy", "leaf_spot", "nutrient_deficiency", "calcium_deficiency")
"""Labels of strawberry boxes that mean leaves; most boxes of `powdery_mildew` are on fruit, and are ignored."""
UNCLEAR: Final = "powdery_mildew"
VALIDATION: Final = 0.3
"""Share of the strawberry groups of `field_train` that validate."""
CROPS: Final = ("apple", "tomato", "strawberry", "citrus", "blackgram", "potato", "mango")
COUNTS: Final = {"train": 1400, "val": 400}
"""Leaves that are cut out, of each split; of scenes and foliage half and a quarter as many."""
Kind = tuple[int, int, int, float, bool]
"""Side of the photos, cells of the maps, photos of a batch, share of boxed photos, and `read_pools`' `everything`."""
COMPOUND: Final = 0.3
"""Share of composed leaves that are made of three leaflets of strawberry, whose boxes are around whole leaves."""
EMPTY: Final = 0.15
"""Weight of what is not boxed in a strawberry photo: by far not all of its leaves are."""


@dataclass(frozen=True, slots=True, eq=False)
class Pools:
    """What examples are made of. boxed: photos, boxes as shares, ignored boxes; single: whole lab photos, one box."""

    leaves: Sequence[CutLeaf]
    scenes: Sequence[Array]
    foliage: Sequence[Array]
    boxed: Sequence[tuple[Array, Array, Array]]
    single: Sequence[tuple[Array, Array]]


def split_of(row: dict[str, str]) -> str:
    if row["split"] == "field_train":
        return "val" if share_of(row["group"]) < VALIDATION else "train"
    return row["split"]


def read_rows(data: Path) -> list[dict[str, str]]:
    rows = []
    for pack in ("leaves", "field"):
        with (data / pack / "manifest.csv").open(newline="", encoding="utf-8") as file:
            rows += [{**row, "file": str(data / pack / row["path"]), "split": split_of(row)}
                     for row in csv.DictReader(file)]  # fmt: skip
    return rows


def pack(data: Path, out: Path) -> None:
    rng, rows = np.random.default_rng(0), read_rows(data)
    out.mkdir(parents=True, exist_ok=True)
    index: dict[str, dict[str, list[Any]]] = {}
    for split, count in COUNTS.items():
        mine = [rows[i] for i in rng.permutation(len(rows)) if rows[i]["split"] == split]
        part = index[split] = {"leaves": [], "scenes": [], "foliage": [], "boxed": [], "single": []}
        per_class: dict[str, int] = {}
        for row in mine:
            name, label = f"{split}-{row['sha256'][:16]}.webp", f"{row['crop']}/{row['condition']}"
            if row.get("boxes"):
                boxes = [[y0, x0, y1, x1, name] for x0, y0, x1, y1, name in json.loads(row["boxes"])]
                write(out / name, read_photo(row["file"]), 85)
                part["boxed"].append([name, boxes])
            elif row["crop"] == "background" and len(part["scenes"]) < count // 2:
                write(out / name, read_photo(row["file"], 224), 75)
                part["scenes"].append(name)
            elif row["setting"] == "field" and row["crop"] in ("apple", "bean", "chilli") and (
                len(part["foliage"]) < count // 4):
                write(out / name, read_photo(row["file"], 224), 75)
                part["foliage"].append(name)
            elif row["setting"] == "lab" and row["crop"] in CROPS and len(part["leaves"]) < count and (
                per_class.get(label, 0) < count // 18):
                photo = read_photo(row["file"], 224)
                mask = None
                if row.get("mask"):
                    marks = cv2.imread(str(data / "field" / row["mask"]), cv2.IMREAD_GRAYSCALE)
                    mask = letter_mask(marks, 224)
                leaf = cut_leaf(photo, label, mask)
                if leaf is None:
                    continue
                per_class[label] = per_class.get(label, 0) + 1
                write(out / name, np.dstack([leaf.rgb, leaf.mask * 255]).astype(np.uint8), 85)
                part["leaves"].append([name, label])
                if len(part["single"]) < count // 3:
                    write(out / f"single-{name}", photo, 75)
                    part["single"].append([f"single-{name}", leaf.place])
        print(split, {kind: len(items) for kind, items in part.items()}, flush=True)
    (out / "pack.json").write_text(json.dumps(index))


def letter_mask(marks: Array, side: int) -> Array:
    """A mask of the pack as the centred square of its photo, bool ``(side, side)``."""
    height, width = marks.shape
    short = min(height, width)
    y, x = (height - short) // 2, (width - short) // 2
    return cv2.resize((marks[y : y + short, x : x + short] > 0).astype(np.uint8), (side, side),
                      interpolation=cv2.INTER_NEAREST).astype(bool)  # fmt: skip


def write(path: Path, rgb: Array, quality: int) -> None:
    order = [2, 1, 0, *range(3, rgb.shape[2])]
    path.write_bytes(cv2.imencode(".webp", rgb[..., order], [cv2.IMWRITE_WEBP_QUALITY, quality])[1].tobytes())


def read_pools(folder: Path, everything: bool) -> Pools:
    """Training examples; everything: boxed validation photos too."""
    index = json.loads((folder / "pack.json").read_text())
    part = index["train"]

    def read(name: str) -> Array:
        found = cv2.imread(str(folder / name), cv2.IMREAD_UNCHANGED)
        return np.asarray(found[..., [2, 1, 0, *range(3, found.shape[2])]])

    leaves = [CutLeaf(rgba[..., :3], rgba[..., 3].astype(np.float32) / 255, label)
              for rgba, label in ((read(name), label) for name, label in part["leaves"])]  # fmt: skip
    photos = part["boxed"] + (index["val"]["boxed"] if everything else [])
    boxed = [(read(name), *as_shares(boxes)) for name, boxes in photos]
    single = [(read(name), np.array([place])) for name, place in part["single"]]
    return Pools(leaves, [read(n) for n in part["scenes"]], [read(n) for n in part["foliage"]], boxed, single)


def as_shares(boxes: Sequence[Sequence[Any]]) -> tuple[Array, Array]:
    """Leaf boxes and unclear ones, y0, x0, y1, x1 in pixels, float ``(N, 4)``."""
    parts = ([b[:4] for b in boxes if b[4] in kinds] for kinds in (LEAF_CONDITIONS, (UNCLEAR,)))
    leaves, unclear = (np.array(part, np.float64).reshape(-1, 4) for part in parts)
    return leaves, unclear


def make_example(rng: np.random.Generator, pools: Pools, side: int, share: float) -> Example:
    none = np.zeros((0, 4))
    if rng.random() < share:
        return photo_example(rng, *pools.boxed[rng.integers(len(pools.boxed))], EMPTY, side)
    kind = rng.random()
    if kind < 0.1:
        photo, boxes = pools.single[rng.integers(len(pools.single))]
        return photo_example(rng, photo, boxes, none, 1.0, side)
    if kind < 0.18:
        return photo_example(rng, pools.scenes[rng.integers(len(pools.scenes))], none, none, 1.0, side)
    count = int(rng.choice(6, p=(0.12, 0.2, 0.2, 0.18, 0.15, 0.15))) + 1
    chosen = [random_leaf(rng, pools.leaves) for _ in range(count)]
    background = random_background(rng, pools.scenes, pools.foliage, random_shape(rng, side))
    made = compose(rng, chosen, background, (0.15, 0.9 if count == 1 else 0.65))
    return framed(jitter(rng, made.photo), made.boxes, none, 1.0, side)


def random_leaf(rng: np.random.Generator, leaves: Sequence[CutLeaf]) -> CutLeaf:
    """One of the leaves, or three of strawberry as leaflets of one."""
    if rng.random() >= COMPOUND:
        return leaves[rng.integers(len(leaves))]
    leaflets = [leaf for leaf in leaves if leaf.label.startswith("strawberry")]
    return compound_leaf(rng, [leaflets[i] for i in rng.integers(0, len(leaflets), 3)])


def transposed(example: Example) -> Example:
    """The example mirrored at its diagonal: a second one for little time."""
    photo = np.ascontiguousarray(example.photo.transpose(1, 0, 2))
    boxes, ignored = (boxes[:, [1, 0, 3, 2]] for boxes in (example.boxes, example.ignored))
    return Example(photo, boxes, ignored, example.empty)


def photo_example(
    rng: np.random.Generator, photo: Array, boxes: Array, ignored: Array, empty: float, side: int
) -> Example:
    """A random part of a photo, turned by quarters and mirrored; boxes that are cut off are ignored."""
    height, width = photo.shape[:2]
    zoom = rng.uniform(0.55, 1.0, 2) if rng.random() < 0.7 else np.ones(2)
    high, wide = (round(n * z) for n, z in zip((height, width), zoom, strict=True))
    y, x = int(rng.integers(0, height - high + 1)), int(rng.integers(0, width - wide + 1))
    part = photo[y : y + high, x : x + wide]
    shift, limit = np.array((y, x, y, x)), np.array((high, wide, high, wide))
    cut = np.clip(boxes - shift, 0, limit)
    areas = [np.maximum((b[:, 2:] - b[:, :2]).prod(axis=1), 1e-9) for b in (cut, boxes)]
    whole = areas[0] > 0.6 * areas[1]
    ignored = np.concatenate([np.clip(ignored - shift, 0, limit), cut[~whole]])
    boxes = cut[whole]
    for _ in range(int(rng.integers(4))):
        part, high = np.rot90(part), part.shape[1]
        both = boxes, ignored
        boxes, ignored = (np.stack([high - b[:, 3], b[:, 0], high - b[:, 1], b[:, 2]], axis=1) for b in both)
    if rng.random() < 0.5:
        part, wide = part[:, ::-1], part.shape[1]
        both = boxes, ignored
        boxes, ignored = (np.stack([b[:, 0], wide - b[:, 3], b[:, 2], wide - b[:, 1]], axis=1) for b in both)
    return framed(jitter(rng, np.ascontiguousarray(part)), boxes, ignored, empty, side)


def jitter(rng: np.random.Generator, photo: Array) -> Array:
    """Other light and white balance."""
    gain = rng.uniform(0.7, 1.3) * rng.uniform(0.92, 1.08, 3)
    table = np.clip(np.arange(256)[:, None] * gain + rng.uniform(-15, 15), 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(photo, table[None]))


def framed(photo: Array, boxes: Array, ignored: Array, empty: float, side: int) -> Example:
    """The photo in a grey square, at times small in it, with boxes as shares of the square."""
    height, width = photo.shape[:2]
    long = max(height, width)
    corner = np.array(((long - height) / 2, (long - width) / 2) * 2)
    return Example(letterbox(photo, side), (boxes + corner) / long, (ignored + corner) / long, empty)


_shared: list[Any] = []


def _prepare(folder: Path, kind: Kind) -> None:
    cv2.setNumThreads(1)
    _shared[:] = [read_pools(folder, kind[-1]), kind]


def _make_batch(seed: int) -> Batch:
    pools, (side, cells, batch, boxed, _) = _shared
    rng = np.random.default_rng((7, seed))
    made = [make_example(rng, pools, side, boxed) for _ in range(batch // 2)]
    return make_batch([*made, *map(transposed, made)], cells)


def batches(folder: Path, kind: Kind, seed: int, workers: int) -> Iterator[Batch]:
    """Batches without end, the same for the same seed, made in so many processes (0: in this one)."""
    seeds = iter(range(seed * 1_000_000, seed * 1_000_000 + 100_000))
    if not workers:
        _prepare(folder, kind)
        yield from map(_make_batch, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers, _prepare, (folder, kind)) as pool:
        yield from pool.imap(_make_batch, seeds)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("data", type=Path)
    packing.add_argument("--out", type=Path, required=True)
    training = commands.add_parser("train")
    training.add_argument("pack", type=Path)
    training.add_argument("--out", type=Path, required=True)
    training.add_argument("--start", type=Path, help="detector whose weights are trained further")
    training.add_argument("--side", type=int, default=320)
    training.add_argument("--last", default="features.12", help="last layer of the small model that is used")
    training.add_argument("--hidden", type=int, default=64)
    training.add_argument("--boxed", type=float, default=0.33, help="share of boxed strawberry photos")
    training.add_argument("--everything", action="store_true", help="train on the boxed validation photos too")
    training.add_argument("--steps", type=int, default=4000)
    training.add_argument("--seconds", type=float, default=0, help="end after this time instead")
    training.add_argument("--batch", type=int, default=16)
    training.add_argument("--rate", type=float, default=1e-3)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--device", default="cpu")
    training.add_argument("--threads", type=int, default=1)
    training.add_argument("--workers", type=int, default=0)
    return parser


def main() -> None:
    options = make_parser().parse_args()
    if options.command == "pack":
        pack(options.data, options.out)
        return
    base = read_model(find_model(Path("small")))
    graph, wide = (detector_graph(base.graph, options.side, options.last, options.hidden, channels)
                   for channels in (len(CHANNELS), WIDTH))  # fmt: skip
    wide = training_graph(wide)
    start = read_model(options.start).weights if options.start else base.weights
    weights = first_weights(wide, start, options.seed)
    kind = options.side, graph.node(MAPS).shape[0], options.batch, options.boxed, options.everything
    made = batches(options.pack, kind, options.seed, options.workers)
    made = itertools.chain([next(made)], made)  # workers begin while kernels are compiled
    for step, loss, trained in train(graph, wide, weights, made, steps=options.steps, seconds=options.seconds,
                                     batch=options.batch, rate=options.rate, device=options.device,
                                     threads=options.threads):  # fmt: skip
        print(f"{options.out.stem} step {step}: loss {loss:.3f}", flush=True)
        if trained:
            model = ModelFile(graph, trained, CHANNELS, options.side, name="LeafClinic leaf detector", date=today(),
                              licence="MIT for the weights as a work of this project; photos: see card")  # fmt: skip
            write_model(options.out, in_bits(model, 8))


if __name__ == "__main__":
    main()
