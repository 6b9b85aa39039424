"""Train the network that finds leaf and lesions, on a CPU in about ten minutes.

    python -m benchmarks.segmentation_training $LEAFCLINIC_DATA --out resources/models/segmentation.safetensors

Pixels are drawn from augmented training photos: photos with masks drawn by hand; other photos, whose leaf the
network that is shipped finds (for the first network colour rules and GrabCut did); scenes without a leaf; synthetic
leaves. What of a diseased leaf is lesion is learned from drawn masks alone. Lab leaves are also pasted on scenes.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from core.cores import usable_cores
from core.data.leaf_drawing import CONDITIONS, draw_leaf
from core.data.photo import decode, read_bytes, square
from core.device import Optimizer, PhotoBatch
from core.diagnosis.pixel_features import GLOBAL, LOCAL, SIDE, pixel_features
from core.diagnosis.segmentation import BACKGROUND, KIND, LEAF, LESION, VERSION, segment_leaf
from core.graph import Graph
from core.models.init import initial_weights
from core.ops.builder import Builder, with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.plan import compile_plan
from core.tensor_file import write_tensor_file

STORED = 256
"""Side of the photos before augmentation."""
UNKNOWN = 255
GREEN = 6
"""Units of CIELAB's a* towards green from which a pixel without a mark is leaf."""
PIXELS = 500
"""Pixels drawn from each augmented photo."""
HIDDEN = (48, 32)
BATCH, RATE, AVERAGE = 4096, 4e-3, 0.999
LESION_WEIGHT = 2.0
"""Of a lesion pixel in the loss: without it the lesions found are too small by a third of their area."""
ZERO, STEPS = 128, 56
"""A feature as a byte: zero, and steps of one unit."""
MARKED = Path("tests/core/diagnosis/masks/leaves.json")
"""Photos that the tests measure; none is trained on."""


@dataclass(frozen=True)
class Example:
    """A photo uint8 ``(STORED, STORED, 3)`` with labels; how often it is augmented; whether it is pasted on scenes."""

    rgb: Array
    labels: Array
    times: int
    pasted: bool


def read_rows(root: Path, splits: tuple[str, ...]) -> list[dict[str, str]]:
    with (root / "manifest.csv").open(newline="", encoding="utf-8") as file:
        return [{**row, "root": str(root)} for row in csv.DictReader(file) if row["split"] in splits]


def read_square(row: dict[str, str]) -> Array:
    return square(decode(read_bytes(str(Path(row["root"]) / row["path"]))), STORED)


TIMES = {"wheat": 16, "potato": 8, "soybean": 6, "mixed": 8, "rice": 4}


def drawn_example(row: dict[str, str]) -> Example:
    """A photo with a mask drawn by hand. Where it marks lesions only, green is leaf, and in macro photos all is."""
    photo, crop = read_square(row), row["crop"]
    grey = cv2.imread(str(Path(row["root"]) / row["mask"]), cv2.IMREAD_GRAYSCALE)
    marks = square(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), STORED)[..., 0]
    labels = np.where(marks > 191, LESION, np.where(marks > 64, LEAF, BACKGROUND)).astype(np.uint8)
    if crop == "soybean":
        labels[labels != LESION] = LEAF
    elif crop in ("rice", "mixed"):
        green = cv2.cvtColor(photo, cv2.COLOR_RGB2LAB)[..., 1] < 128 - GREEN
        labels[labels != LESION] = np.where(green, LEAF, UNKNOWN)[labels != LESION]
    return Example(photo, labels, TIMES[crop], crop in ("wheat", "potato") and row["setting"] == "lab")


def taught_example(row: dict[str, str]) -> Example:
    """A photo with the leaf that the present network finds; what of a diseased leaf is lesion is not known."""
    photo = read_square(row)
    if row["crop"] == "background":
        return Example(photo, np.zeros((STORED, STORED), np.uint8), 1, False)
    leaf, healthy = segment_leaf(photo).astype(np.uint8), row["condition"] == "healthy"
    leaf = cv2.morphologyEx(leaf, cv2.MORPH_OPEN, np.ones((7, 7), np.uint8))  # without its stalk
    edge = cv2.dilate(leaf, np.ones((7, 7))) != cv2.erode(leaf, np.ones((5, 5)))
    labels = np.where(edge, UNKNOWN, np.where(leaf > 0, LEAF if healthy else UNKNOWN, BACKGROUND)).astype(np.uint8)
    return Example(photo, labels, 3 if healthy else 2, row["setting"] == "lab")


def drawn_leaves(random: np.random.Generator) -> Iterator[Example]:
    """Synthetic leaves, and ellipses with discs on plain paper."""
    for condition in CONDITIONS:
        for number in range(25):
            leaf = draw_leaf(condition, 7, number, 0, STORED)
            yield Example(leaf.rgb, (leaf.leaf.astype(np.uint8) + leaf.lesion).astype(np.uint8), 2, True)
    for _ in range(60):
        labels = np.zeros((STORED, STORED), np.uint8)
        photo = np.full((STORED, STORED, 3), random.integers(5, 235) + random.integers(-15, 16, 3), np.float64)
        axes, middle = random.uniform(0.1, 0.4, 2) * STORED, random.uniform(0.4, 0.6, 2) * STORED
        cv2.ellipse(labels, (middle, 2 * axes, random.uniform(0, 180)), LEAF, -1)
        photo[labels == LEAF] = random.uniform((40, 110, 25), (110, 170, 75))
        for _ in range(random.integers(0, 8)):
            spot = np.zeros_like(labels)
            at = np.clip(random.normal(middle, axes / 2), 0, STORED - 1).astype(int)
            cv2.circle(spot, (int(at[0]), int(at[1])), int(random.integers(4, 24)), 1, -1)
            where = (spot > 0) & (labels > 0)
            labels[where], photo[where] = LESION, random.uniform((70, 45, 20), (150, 100, 60))
        yield Example(np.clip(photo + random.normal(0, 3, photo.shape), 0, 255).astype(np.uint8), labels, 2, False)


def collect(data: Path, random: np.random.Generator) -> list[Example]:
    """The examples of all kinds; photos without drawn masks by crop, health and setting, so many of each."""
    marked = {row["photo"] for row in json.loads(MARKED.read_text("utf-8"))["photos"]}
    field = read_rows(data / "field", ("train", "field_train"))
    other = [row for row in field if not row["mask"] and row["crop"] in ("mango", "potato", "apple")]
    other += [row for row in read_rows(data / "leaves", ("train",)) if row["path"] not in marked]
    kinds: dict[tuple[str, bool, str], list[dict[str, str]]] = {}
    for row in other:
        healthy, crop = row["condition"] == "healthy", row["crop"]
        if crop != "rice" and (crop != "apple" or healthy or row["setting"] == "lab"):
            kinds.setdefault((crop, healthy, row["setting"]), []).append(row)
    chosen = []
    for (crop, healthy, _), rows in sorted(kinds.items()):
        count = 350 if crop == "background" else 70 if healthy else 46
        chosen += [rows[i] for i in random.permutation(len(rows))[:count]]
    with ThreadPoolExecutor(usable_cores()) as pool:
        examples = list(pool.map(drawn_example, [row for row in field if row["mask"]]))
        examples += pool.map(taught_example, chosen)
    return [*examples, *drawn_leaves(random)]


def augment(example: Example, random: np.random.Generator, scene: Array | None) -> tuple[Array, Array]:
    """Paste, turn, zoom, mirror, change light and colour, blur, add noise: photo and labels of `SIDE`."""
    rgb, labels = example.rgb, example.labels
    if scene is not None:
        labels = np.where(labels == UNKNOWN, BACKGROUND, labels)
        share = cv2.GaussianBlur((labels > 0).astype(np.float32), (0, 0), 0.7)[..., None]
        rgb = (rgb * share + scene * (1 - share)).astype(np.uint8)
    angle = random.uniform(-180, 180) if random.random() < 0.5 else random.choice((0, 90, 180, 270))
    middle = STORED * random.uniform(0.4, 0.6, 2)
    turn = cv2.getRotationMatrix2D(middle, angle, SIDE / STORED / random.uniform(0.6, 1.15))
    turn[:, 2] += SIDE / 2 - middle
    warp = partial(cv2.warpAffine, M=turn, dsize=(SIDE, SIDE), borderMode=cv2.BORDER_REFLECT_101)
    rgb, labels = warp(rgb, flags=cv2.INTER_AREA), warp(labels, flags=cv2.INTER_NEAREST)
    if random.random() < 0.5:
        rgb, labels = rgb[:, ::-1], labels[:, ::-1]
    light = (rgb / np.float32(255)) ** np.exp(random.normal(0, 0.2)) * np.exp(random.normal(0, 0.15))
    light = light * np.exp(random.normal(0, 0.05, 3))
    if random.random() < 0.3:
        light = cv2.GaussianBlur(light, (0, 0), random.uniform(0.4, 1.2))
    noisy = 255 * light + random.normal(0, 1.5, light.shape)
    return np.ascontiguousarray(np.clip(noisy, 0, 255).astype(np.uint8)), labels


def draw_pixels(examples: list[Example], seed: int) -> tuple[Array, Array]:
    """Features as bytes ``(N, LOCAL + GLOBAL)`` and labels int32 ``(N,)``."""
    scenes = [e.rgb for e in examples if not e.labels.any()]

    def draw(job: tuple[int, int]) -> tuple[Array, Array]:
        random, example = np.random.default_rng((seed, *job)), examples[job[0]]
        scene = scenes[random.integers(len(scenes))] if example.pasted and job[1] and random.random() < 0.4 else None
        rgb, labels = augment(example, random, scene)
        known = np.flatnonzero(labels.ravel() != UNKNOWN)
        at = random.choice(known, min(PIXELS, len(known)), replace=False)
        local, whole = pixel_features(rgb)
        found = np.concatenate((local.reshape(-1, LOCAL)[at], np.broadcast_to(whole, (len(at), GLOBAL))), axis=1)
        return np.clip(np.round(STEPS * found + ZERO), 0, 255).astype(np.uint8), labels.ravel()[at].astype(np.int32)

    jobs = [(number, time) for number, example in enumerate(examples) for time in range(example.times)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        parts = list(pool.map(draw, jobs))
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def make_graph() -> Graph:
    """Dense layers on the features, which stand as an image of one row."""
    b = Builder("segmentation", (1, (LOCAL + GLOBAL) // 3, 3), (ZERO / 255,) * 3, (STEPS / 255,) * 3)
    x = b.add("flatten", "flatten", "photo")
    for number, units in enumerate(HIDDEN):
        x = b.add("relu", f"relu{number}", b.add("dense", f"dense{number}", x, units=units, init="he_uniform"))
    return b.graph(b.add("dense", f"dense{len(HIDDEN)}", x, units=3, init="glorot_uniform"))


def train(x: Array, y: Array, steps: int, seed: int) -> dict[str, Array]:
    """Adam with a cosine schedule; the running average of the weights."""
    graph = with_loss(make_graph(), 0.0, (1.0, 1.0, LESION_WEIGHT))
    plan = compile_plan(graph, batch=BATCH, training=True, optimizer=Optimizer(name="adam", average=AVERAGE))
    plan.load(initial_weights(graph, seed))
    x, random, loss = x.reshape(len(x), 1, -1, 3), np.random.default_rng(seed), 0.0
    shape = x.shape[1:3]
    for step in range(steps):
        at = random.integers(0, len(x), BATCH)
        batch = PhotoBatch(x[at], identity_augmentation(BATCH, shape, shape), y[at])
        loss += plan.train_step(batch, RATE / 2 * (1 + np.cos(np.pi * step / steps))).loss / 500
        if step % 500 == 499:
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)
            loss = 0.0
    weights = plan.weights()
    plan.close()
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the photo packs leaves and field")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    begin = time.perf_counter()
    examples = collect(options.data, np.random.default_rng(options.seed))
    x, y = draw_pixels(examples, options.seed)
    print(f"{len(examples)} photos, {len(x)} pixels, shares of the classes {np.bincount(y) / len(y)}", flush=True)
    write_tensor_file(options.out, KIND, VERSION, {}, train(x, y, options.steps, options.seed))
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
