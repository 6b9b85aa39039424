"""Photos of several leaves: which leaves are found, and how well the photo and each leaf are diagnosed.

    python -m benchmarks.several_leaves $LEAFCLINIC_DATA --split val --out benchmarks/results/several_leaves.json

Boxed strawberry photos measure which leaves are found. Photos composed of lab leaves of one crop (2 to 6 leaves,
healthy or with one disease) measure that and the diagnoses, by five ways to look at a photo: whole, 3 x 3 overlapping
tiles with a vote, regions of plants (`core.diagnosis.segmentation`), leaves of the detector, and the true boxes. Photos
of one leaf measure how often they seem to show several. With `--split test` this reads `field_test` and `test`: log it
in benchmarks/results/test_readings.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from benchmarks.composed_photos import ComposedPhoto, compose, cut_leaf, random_background, random_shape
from benchmarks.detector_examples import read_boxes
from benchmarks.record import commit
from benchmarks.ship_detector import read_rows
from core.data.photo import square
from core.data.photo_reader import read_photo
from core.diagnosis import segmentation
from core.diagnosis.boxes import as_box, overlaps
from core.diagnosis.leaf_detector import PATHS, FoundLeaf, LeafDetector, choose_leaves, cut_square
from core.diagnosis.metrics import wilson_interval
from core.diagnosis.model_file import read_model
from core.diagnosis.model_identity import find_model
from core.diagnosis.prediction import Predictor
from core.diagnosis.verdict import NO_LEAF, NOT_SURE, count_findings, is_healthy
from core.ops.contract import Array

SPLITS: Final = {"val": ("val", "val"), "test": ("test", "field_test")}
"""Splits of the lab leaves, and of the strawberry photos."""
FOUND: Final = 0.5
"""Intersection over union from which a box is found."""
SIDE: Final = 800
"""Longer side of composed photos, pixels: their leaves are hardly enlarged."""


def composed_photos(data: Path, split: str, count: int, seed: int) -> tuple[list[ComposedPhoto], list[list[Array]]]:
    """Photos, and the lab photo of each of their leaves."""
    rng = np.random.default_rng(seed)
    rows = [row for row in read_rows(data) if row["split"] == split]
    crops: dict[str, dict[str, list[dict[str, str]]]] = {}
    for row in rows:
        if row["setting"] == "lab" and row["crop"] in ("apple", "tomato", "strawberry", "citrus", "potato"):
            crops.setdefault(row["crop"], {}).setdefault(row["condition"], []).append(row)
    scenes = [read_photo(r["file"], 224) for r in rows if r["crop"] == "background"][:80]
    foliage = [read_photo(r["file"], 224) for r in rows if r["crop"] in ("bean", "chilli")][:80]
    made, sources = [], []
    while len(made) < count:
        conditions = crops[str(rng.choice(sorted(crops)))]
        disease = str(rng.choice([c for c in sorted(conditions) if c != "healthy"]))
        wanted = [disease if rng.random() < 0.5 else "healthy" for _ in range(int(rng.integers(2, 7)))]
        chosen = [conditions[c][rng.integers(len(conditions[c]))] for c in wanted]
        photos = [read_photo(row["file"], 224) for row in chosen]
        cut = [cut_leaf(photo, f"{row['crop']}/{row['condition']}") for photo, row in zip(photos, chosen, strict=True)]
        kept = [(leaf, photo) for leaf, photo in zip(cut, photos, strict=True) if leaf is not None]
        shape = random_shape(rng, SIDE)
        photo = compose(rng, [leaf for leaf, _ in kept], random_background(rng, scenes, foliage, shape))
        if len(photo.boxes) > 1:
            made.append(photo)
            sources.append([kept[i][1] for i in photo.sources])
    return made, sources


def to_shares(boxes: Array, shape: Sequence[int]) -> Array:
    """Boxes in pixels as shares of the photo's centred square."""
    height, width = shape[:2]
    short = min(height, width)
    corner = np.array(((height - short) / 2, (width - short) / 2) * 2)
    return np.asarray((boxes - corner) / short)


def match(truth: Array, found: Sequence[FoundLeaf]) -> list[int]:
    """For each true box the index of the box found for it, or -1; each is given once, the best pair first."""
    if not len(truth) or not found:
        return [-1] * len(truth)
    table = np.stack([overlaps(box, np.array([leaf.box for leaf in found])) for box in truth])
    taken = [-1] * len(truth)
    while table.max() >= FOUND:
        row, column = (int(i) for i in np.unravel_index(table.argmax(), table.shape))
        taken[row] = column
        table[row], table[:, column] = -1, -1
    return taken


def regions_by_colour(rgb: Array) -> list[FoundLeaf]:
    """Connected regions of the plants that `core.diagnosis.segmentation` separates from the background."""
    plants = (segmentation.classify(rgb)[segmentation.BACKGROUND] < 0.5).astype(np.uint8)
    side = len(plants)
    _, _, stats, _ = cv2.connectedComponentsWithStats(cv2.morphologyEx(plants, cv2.MORPH_OPEN, segmentation.SPECK))
    scale = np.array(rgb.shape[:2] * 2) / side
    boxes = [np.array((y, x, y + h, x + w)) * scale for x, y, w, h, area in stats[1:] if area > 0.01 * side * side]
    return [FoundLeaf(as_box(box), 1.0) for box in to_shares(np.array(boxes).reshape(-1, 4), rgb.shape)]


def tiles(rgb: Array) -> list[FoundLeaf]:
    """3 x 3 tiles, each of half the photo's height and width."""
    height, width = rgb.shape[:2]
    steps = [(y / 4, x / 4) for y in range(3) for x in range(3)]
    boxes = np.array([(y * height, x * width, (y + 0.5) * height, (x + 0.5) * width) for y, x in steps])
    return [FoundLeaf(as_box(box), 1.0) for box in to_shares(boxes, rgb.shape)]


def words_of(predictor: Predictor, rgb: Array, found: Sequence[FoundLeaf]) -> tuple[list[str], list[int]]:
    """Verdict and likeliest class of each region."""
    if not found:
        return [], []
    photos = np.stack([cut_square(rgb, leaf.box, predictor.model.source_side)[0] for leaf in found])
    predictions = predictor.predict_calibrated(photos, cut=len(found) > 1)
    return [predictor.rule.decide(p).word for p in predictions], [int(p.probabilities.argmax()) for p in predictions]


def answer(words: Sequence[str]) -> str:
    """The diagnosis of a photo from those of its leaves."""
    known = [word for word in words if word != NO_LEAF]
    return count_findings(known)[0][0] if known else NO_LEAF


def truth_of(photo: ComposedPhoto) -> str:
    diseased = [label for label in photo.labels if not is_healthy(label)]
    return diseased[0] if diseased else photo.labels[0]


def share(hits: int, total: int) -> dict[str, Any]:
    low, high = wilson_interval(hits, max(total, 1))
    return {"share": round(hits / max(total, 1), 4), "interval": [round(low, 4), round(high, 4)], "of": total}


def measure_strawberry(data: Path, split: str, detector: LeafDetector) -> dict[str, Any]:
    hits, total, found_boxes, by_colour = 0, 0, 0, 0
    rows = [row for row in read_rows(data) if row.get("boxes") and row["split"] == split]
    used = 0
    for row in rows:
        boxes, _ = read_boxes([[y0, x0, y1, x1, name] for x0, y0, x1, y1, name in json.loads(row["boxes"])])
        if not len(boxes):
            continue
        rgb = read_photo(row["file"])
        truth, found = to_shares(boxes, rgb.shape), detector.find(rgb)
        used += 1
        hits += sum(at >= 0 for at in match(truth, found))
        by_colour += sum(at >= 0 for at in match(truth, regions_by_colour(rgb)))
        total += len(truth)
        found_boxes += len(found)
    return {"found": share(hits, total), "by colour": share(by_colour, total), "photos": used,
            "boxes given per photo": round(found_boxes / max(used, 1), 2)}  # fmt: skip


def measure_composed(
    photos: Sequence[ComposedPhoto], sources: Sequence[Sequence[Array]], detector: LeafDetector, predictor: Predictor
) -> dict[str, Any]:
    right, named, sums = Counter[str](), Counter[str](), Counter[str]()
    classes = predictor.model.classes
    for photo, lab in zip(photos, sources, strict=True):
        rgb, truth = photo.photo, to_shares(photo.boxes, photo.photo.shape)
        looks = {
            "whole photo": [FoundLeaf((0.0, 0.0, 1.0, 1.0), 1.0)], "tiles": tiles(rgb),
            "regions by colour": regions_by_colour(rgb), "detector": choose_leaves(detector.find(rgb), rgb.shape),
            "true boxes": [FoundLeaf(as_box(box), 1.0) for box in truth],
        }  # fmt: skip
        for way, found in looks.items():
            words, guesses = words_of(predictor, rgb, found)
            if way == "tiles":  # a vote: a class named by one tile of nine is chance
                votes = Counter(word for word in words if word not in (NO_LEAF, NOT_SURE))
                words = [word for word in words if votes[word] > 1] or words
            said = answer(words)
            right[way] += said == truth_of(photo)
            named[way] += said not in (NOT_SURE, NO_LEAF)
            if way in ("regions by colour", "detector", "true boxes"):
                pairs = match(truth, found)
                sums[f"{way} hits"] += sum(at >= 0 for at in pairs)
                sums[f"{way} boxes"] += len(found)
                hit = [(i, at) for i, at in enumerate(pairs) if at >= 0]
                sums[f"{way} right"] += sum(classes[guesses[at]] == photo.labels[i] for i, at in hit)
                if way == "detector":
                    same = predictor.probabilities(np.stack([square(p, predictor.model.source_side) for p in lab]))
                    sums["single right"] += sum(classes[int(p.argmax())] == photo.labels[i]
                                                for i, p in enumerate(same) if pairs[i] >= 0)  # fmt: skip
        sums["leaves"] += len(truth)
    result: dict[str, Any] = {way: {"photo right": share(right[way], len(photos)),
                                    "answered": share(named[way], len(photos))} for way in looks}  # fmt: skip
    for way in ("regions by colour", "detector", "true boxes"):
        hits = sums[f"{way} hits"]
        result[way] |= {"leaves found": share(hits, sums["leaves"]),
                        "boxes that are a leaf": share(hits, sums[f"{way} boxes"]),
                        "found leaf right": share(sums[f"{way} right"], hits)}  # fmt: skip
    result["detector"]["the same leaves, lab photo right"] = share(sums["single right"], sums["detector hits"])
    return result


def measure_single(data: Path, split: str, detector: LeafDetector, most: int) -> dict[str, Any]:
    """How often photos of one leaf seem to show several."""
    rng, rows = np.random.default_rng(0), [row for row in read_rows(data) if row["split"] == split]
    field = [row for row in rows if row["setting"] == "field"]
    kinds = {"lab": [row for row in rows if row["setting"] == "lab"]}
    for name, crop in (("apple, field", "apple"), ("bean, field", "bean"), ("no leaf", "background")):
        kinds[name] = [row for row in field if row["crop"] == crop]
    found = {}
    for name, those in kinds.items():
        some = [those[i] for i in rng.permutation(len(those))[:most]]
        photos = (read_photo(row["file"]) for row in some)
        counts = [len(choose_leaves(detector.find(photo), photo.shape)) for photo in photos]
        found[name] = {"several": share(sum(count > 1 for count in counts), len(counts)),
                       "none": share(sum(count == 0 for count in counts), len(counts))}  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", choices=SPLITS, default="val")
    parser.add_argument("--detector", type=Path, nargs="+", default=PATHS)
    parser.add_argument("--photos", type=int, default=120)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lab, field = SPLITS[options.split]
    detector, predictor = LeafDetector(options.detector), Predictor(read_model(find_model(Path("leaves"))), batch=6)
    begin = time.time()
    result: dict[str, Any] = {"strawberry": measure_strawberry(options.data, field, detector)}
    print(json.dumps(result, indent=1), flush=True)
    result["one leaf"] = measure_single(options.data, lab, detector, options.photos)
    print(json.dumps(result["one leaf"], indent=1), flush=True)
    photos, sources = composed_photos(options.data, lab, options.photos, 1)
    result["composed"] = measure_composed(photos, sources, detector, predictor)
    print(json.dumps(result["composed"], indent=1), f"{time.time() - begin:.0f} s", flush=True)
    if options.out:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**known, options.split: result | {"commit": commit()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
