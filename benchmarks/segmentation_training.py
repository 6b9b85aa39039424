"""Train the network that finds leaf and lesions, on a CPU in about ten minutes.

    python -m benchmarks.segmentation_training $LEAFCLINIC_DATA --out resources/models/segmentation.safetensors

Pixels are drawn from augmented training photos: photos with masks drawn by hand; healthy photos; scenes without a leaf;
synthetic leaves. Lab leaves are also pasted on scenes. Pixels of healthy photos are not lesion: after a third of the
steps, the network trained so far decides which are leaf and which background, and they are learned too.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from core.cores import usable_cores
from core.data.leaf_drawing import CONDITIONS, draw_leaf
from core.data.photo import decode, read_bytes, square
from core.device import Optimizer, PhotoBatch
from core.diagnosis.context_features import CONTEXT, MODEL, compute_context
from core.diagnosis.model_identity import read_identity
from core.diagnosis.pixel_features import GLOBAL, LOCAL, SCALE, SCALES, SIDE, pixel_features
from core.diagnosis.segmentation import BACKGROUND, KIND, LEAF, LESION, VERSION
from core.graph import Graph
from core.models.init import initial_weights
from core.ops.builder import Builder, with_loss
from core.ops.contract import Array
from core.ops.photo import identity_augmentation
from core.plan import compile_plan
from core.program import name_parameters
from core.tensor_file import write_tensor_file

STORED: Final = 256
"""Side of the photos before augmentation."""
SOUND, UNKNOWN = 3, 4
"""Labels of pixels that are leaf or background, and of pixels that are not drawn."""
GREEN: Final = 6
"""Units of CIELAB's a* towards green from which a pixel without a mark is leaf."""
TIMES: Final = {"wheat": 8, "potato": 4, "soybean": 3, "mixed": 4, "rice": 2}
"""How often a photo with a drawn mask is augmented."""
FIELD_TIMES: Final = 12
"""The same of potatoes outdoors."""
SCENES, HEALTHY = 350, 50
"""Scenes without a leaf; healthy photos of each crop and setting."""
PIXELS: Final = 350
"""Pixels drawn from each augmented photo."""
FEATURES: Final = LOCAL + GLOBAL + SCALES * SCALE + CONTEXT
HIDDEN: Final = (48, 32)
BATCH, RATE, DECAY, AVERAGE = 4096, 4e-3, 1e-3, 0.999
ZERO, STEPS = 128, 32
"""A feature as a byte: its mean, and steps of one standard deviation."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A photo uint8 ``(STORED, STORED, 3)`` with labels; how often it is augmented; whether it is pasted on scenes."""

    rgb: Array
    labels: Array
    times: int = 1
    pasted: bool = False


def read_rows(root: Path) -> list[dict[str, str]]:
    """Training rows of a pack, in an order that does not depend on what else is in it."""
    with (root / "manifest.csv").open(newline="", encoding="utf-8") as file:
        rows = [{**row, "root": str(root)} for row in csv.DictReader(file) if row["split"] in ("train", "field_train")]
    return sorted(rows, key=lambda row: row["sha256"])


def read_square(row: dict[str, str]) -> Array:
    return square(decode(read_bytes(str(Path(row["root"]) / row["path"]))), STORED)


def drawn_example(row: dict[str, str]) -> Example:
    """A photo with a mask drawn by hand. Where it marks lesions only, green is leaf, and in macro photos all is."""
    photo, crop, lab = read_square(row), row["crop"], row["setting"] == "lab"
    grey = cv2.imread(str(Path(row["root"]) / row["mask"]), cv2.IMREAD_GRAYSCALE)
    marks = square(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), STORED)[..., 0]
    labels = np.where(marks > 191, LESION, np.where(marks > 64, LEAF, BACKGROUND)).astype(np.uint8)
    if crop == "soybean":
        labels[labels != LESION] = LEAF
    elif crop in ("rice", "mixed"):
        green = cv2.cvtColor(photo, cv2.COLOR_RGB2LAB)[..., 1] < 128 - GREEN
        labels[labels != LESION] = np.where(green, LEAF, UNKNOWN)[labels != LESION]
    times = FIELD_TIMES if crop == "potato" and not lab else TIMES[crop]
    return Example(photo, labels, times, crop in ("wheat", "potato") and lab)


def plain_example(row: dict[str, str]) -> Example:
    """A scene, or a healthy photo without a mask."""
    scene = row["crop"] == "background"
    return Example(read_square(row), np.full((STORED, STORED), BACKGROUND if scene else SOUND, np.uint8))


def drawn_leaves(random: np.random.Generator) -> Iterator[Example]:
    """Synthetic leaves, and ellipses with discs on plain paper."""
    for condition in CONDITIONS:
        for number in range(25):
            leaf = draw_leaf(condition, 7, number, 0, STORED)
            yield Example(leaf.rgb, (leaf.leaf.astype(np.uint8) + leaf.lesion).astype(np.uint8), 1, True)
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
        yield Example(np.clip(photo + random.normal(0, 3, photo.shape), 0, 255).astype(np.uint8), labels)


def choose_plain(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Scenes and healthy photos without a mask, so many of each crop and setting."""
    kinds: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if not row.get("mask") and (row["crop"] == "background" or row["condition"] == "healthy"):
            kinds.setdefault((row["crop"], row["setting"]), []).append(row)
    return [row for (crop, _), found in sorted(kinds.items())
            for row in found[: SCENES if crop == "background" else HEALTHY]]  # fmt: skip


def collect(data: Path) -> list[Example]:
    field = read_rows(data / "field")
    with ThreadPoolExecutor(usable_cores()) as pool:
        examples = list(pool.map(drawn_example, [row for row in field if row["mask"]]))
        examples += pool.map(plain_example, choose_plain(field + read_rows(data / "leaves")))
    return [*examples, *drawn_leaves(np.random.default_rng(0))]


def augment(example: Example, random: np.random.Generator, scene: Array | None) -> tuple[Array, Array]:
    """Paste, turn, zoom, mirror, change light and colour, blur, add noise: photo and labels of `SIDE`."""
    rgb, labels = example.rgb, example.labels
    if scene is not None:
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
    light = (rgb / np.float32(255)) ** np.float32(np.exp(random.normal(0, 0.2)))
    light *= np.exp(random.normal(0, 0.15) + random.normal(0, 0.05, 3)).astype(np.float32)
    if random.random() < 0.3:
        light = cv2.GaussianBlur(light, (0, 0), random.uniform(0.4, 1.2))
    noisy = 255 * light + 1.5 * random.standard_normal(light.shape, np.float32)
    return np.clip(noisy, 0, 255).astype(np.uint8), labels


@cache
def enlarging() -> dict[int, Array]:
    """For each side of a map of features the matrix ``(SIDE, side)`` that enlarges it along one axis, by doublings."""
    matrices = {SIDE: np.eye(SIDE, dtype=np.float32)}
    for scale in range(1, SCALES + 1):
        side, cells = SIDE >> scale, np.eye(SIDE >> scale, dtype=np.float32)
        matrices[side] = matrices[2 * side] @ cv2.resize(cells, (side, 2 * side))
    return matrices


def features_at(maps: list[Array], y: Array, x: Array) -> Array:
    """Features ``(pixels, channels of all maps)`` of these pixels."""
    parts = []
    for values in maps:
        rows, columns = enlarging()[len(values)][y], enlarging()[len(values)][x]
        lines = (rows @ values.reshape(len(values), -1)).reshape(len(y), *values.shape[1:])
        parts.append(np.einsum("pj,pjc->pc", columns, lines))
    return np.concatenate(parts, axis=1)


def draw_pixels(examples: list[Example], seed: int) -> tuple[list[Array], list[Array]]:
    """Of each augmented photo features float16 ``(pixels, FEATURES)`` and labels ``(pixels,)``."""
    scenes = [e.rgb for e in examples if not e.labels.any()]

    def draw(job: tuple[int, int]) -> tuple[Array, Array]:
        random, example = np.random.default_rng((seed, *job)), examples[job[0]]
        scene = scenes[random.integers(len(scenes))] if example.pasted and job[1] and random.random() < 0.4 else None
        rgb, labels = augment(example, random, scene)
        known = np.flatnonzero(labels.ravel() != UNKNOWN)
        at = random.choice(known, min(PIXELS, len(known)), replace=False)
        local, scales, whole = pixel_features(rgb)
        around = features_at([*scales, *compute_context(rgb)], *np.divmod(at, SIDE))
        found = (local.reshape(-1, LOCAL)[at], np.broadcast_to(whole, (len(at), GLOBAL)), around)
        return np.concatenate(found, axis=1).astype(np.float16), labels.ravel()[at].astype(np.int32)

    jobs = [(number, time) for number, example in enumerate(examples) for time in range(example.times)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        parts = list(pool.map(draw, jobs))
    return [x for x, _ in parts], [y for _, y in parts]


def make_graph() -> Graph:
    """Dense layers on the features, which stand as an image of one row."""
    b = Builder("segmentation", (1, FEATURES // 3, 3), (ZERO / 255,) * 3, (STEPS / 255,) * 3)
    x = b.add("flatten", "flatten", "photo")
    for number, units in enumerate(HIDDEN):
        x = b.add("relu", f"relu{number}", b.add("dense", f"dense{number}", x, units=units, init="he_uniform"))
    return b.graph(b.add("dense", f"dense{len(HIDDEN)}", x, units=3, init="glorot_uniform"))


def train(x: Array, y: Array, steps: int, seed: int) -> dict[str, Array]:
    """Adam with decoupled weight decay and a cosine schedule; the running average of the weights."""
    graph, random = with_loss(make_graph(), 0.0, ()), np.random.default_rng(seed)
    plan = compile_plan(graph, device="cpu", batch=BATCH, training=True,
                        optimizer=Optimizer("adamw", weight_decay=DECAY, average=AVERAGE))  # fmt: skip
    plan.load(initial_weights(graph, seed))
    x, loss, known = x.reshape(len(x), 1, -1, 3), 0.0, np.flatnonzero(y < SOUND)
    shape = x.shape[1:3]
    for step in range(steps):
        if step == steps // 3:
            sound = np.flatnonzero(y == SOUND)
            y = y.copy()
            logits = predict(x[sound], name_parameters(plan.state()["average"], plan.layout))
            y[sound] = logits[:, : LEAF + 1].argmax(axis=1)
            known = np.arange(len(y))
        at = random.choice(known, BATCH)
        batch = PhotoBatch(x[at], identity_augmentation(BATCH, shape, shape), y[at])
        loss += plan.train_step(batch, RATE / 2 * (1 + np.cos(np.pi * step / steps))).loss / 250
        if step % 250 == 249:
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)
            loss = 0.0
    weights = name_parameters(plan.state()["average"], plan.layout)
    plan.close()
    return weights


def predict(x: Array, weights: Mapping[str, Array]) -> Array:
    """Logits ``(N, 3)`` of features as bytes."""
    values = (x.reshape(len(x), -1).astype(np.float32) - ZERO) / STEPS
    for number in range(len(HIDDEN) + 1):
        values = np.maximum(values, 0) if number else values
        values = values @ weights[f"dense{number}.weight"].T + weights[f"dense{number}.bias"]
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the photo packs leaves and field")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    begin = time.perf_counter()
    found, labels = draw_pixels(collect(options.data), options.seed)
    some = np.concatenate(found[::20]).astype(np.float32)
    mean, deviation = some.mean(axis=0), some.std(axis=0) + 1e-3
    y = np.concatenate(labels)
    x = np.concatenate([np.clip(np.round(STEPS * ((part - mean) / deviation) + ZERO), 0, 255).astype(np.uint8)
                        for part in found])  # fmt: skip
    print(f"{len(found)} photos, {len(x)} pixels, {time.perf_counter() - begin:.0f} s", flush=True)
    weights = train(x, y, options.steps, options.seed)
    weights["dense0.weight"] = weights["dense0.weight"] / deviation
    weights["dense0.bias"] = weights["dense0.bias"] - weights["dense0.weight"] @ mean
    header = {"context": read_identity(MODEL).hash}
    write_tensor_file(options.out, KIND, VERSION, header, {name: np.float32(w) for name, w in weights.items()})
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
